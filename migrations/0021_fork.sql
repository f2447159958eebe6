-- Where a session's next Claude session branches off another one: a fork that was not prompted yet,
-- and a session that was rewound. The row goes when a turn of the new Claude session has ended.
CREATE TABLE acp_branches (
    acp_session_id TEXT PRIMARY KEY,
    claude_session_id TEXT NOT NULL, -- the one that it branches off
    last_uuid TEXT -- the newest entry of its transcript that is remembered; NULL: all of them
);

-- Where the turn ended in Claude's transcript; NULL: not known.
ALTER TABLE acp_turns ADD COLUMN claude_session_id TEXT;
ALTER TABLE acp_turns ADD COLUMN last_uuid TEXT;
ALTER TABLE acp_turns ADD COLUMN rewound_at BIGINT; -- NULL: Claude still remembers it
ALTER TABLE acp_turns ADD COLUMN taken_by TEXT; -- the turn into which the prompt went while that ran; NULL: none

ALTER TABLE acp_sessions ADD COLUMN steering TEXT; -- 'steer': prompts go into the running turn; NULL: they wait
