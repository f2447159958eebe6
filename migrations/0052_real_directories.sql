-- Sessions in a list by the place that their directory leads to: only the path that its client gave was compared.

ALTER TABLE acp_sessions ADD COLUMN real_cwd TEXT; -- cwd without symbolic links; NULL: the same path, or nobody has looked

CREATE INDEX acp_sessions_listed_real_cwd ON acp_sessions(real_cwd, updated_at DESC, acp_session_id DESC)
WHERE prompted_at IS NOT NULL AND auxiliary = 0 AND pruned_at IS NULL AND deleted_at IS NULL AND alias_of IS NULL
AND archived_at IS NULL AND real_cwd IS NOT NULL;
