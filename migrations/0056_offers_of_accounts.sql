-- What Claude offers belongs to an account, its settings files and the CLI, of which a directory may have several.

ALTER TABLE acp_offers RENAME TO acp_offers_of_directories;
DROP INDEX acp_offers_by_position;
DROP INDEX acp_offers_by_configuration;

CREATE TABLE acp_offers (
    cwd TEXT NOT NULL,
    account TEXT NOT NULL, -- '': Claude's own configuration
    configuration TEXT NOT NULL, -- JSON: what it was made under: account, setting sources, CLI
    commands TEXT NOT NULL,
    models TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    position BIGINT NOT NULL, -- the greatest is the newest
    PRIMARY KEY (cwd, configuration)
);

-- Whose an offer was is not known where there are sessions of several accounts: all were noted as of the first one.
INSERT INTO acp_offers (cwd, account, configuration, commands, models, updated_at, position)
SELECT cwd, '', configuration, commands, models, updated_at, position FROM acp_offers_of_directories
WHERE configuration IS NOT NULL AND NOT EXISTS (SELECT 1 FROM acp_surroundings WHERE account != '');

DELETE FROM acp_offers_of_directories;
DROP TABLE acp_offers_of_directories;
CREATE INDEX acp_offers_by_position ON acp_offers (position);
CREATE INDEX acp_offers_by_configuration ON acp_offers (configuration, position);
CREATE INDEX acp_offers_by_account ON acp_offers (account, position);
