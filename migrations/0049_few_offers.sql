-- What Claude offers in a directory is kept for the newest directories only, and found by an index.

CREATE INDEX acp_offers_by_position ON acp_offers (position);
CREATE INDEX acp_offers_by_configuration ON acp_offers (configuration, position);
