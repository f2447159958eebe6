-- Notices are deleted with their session.

CREATE INDEX acp_notices_session ON acp_notices(acp_session_id);
