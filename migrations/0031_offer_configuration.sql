-- What an offer was made under (account, settings files, CLI), so that another directory may have what does not belong to this one.

ALTER TABLE acp_offers ADD COLUMN configuration TEXT; -- NULL: by an earlier version
