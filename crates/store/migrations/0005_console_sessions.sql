-- People who are signed in at the console. `key` is the digest of what their browser holds, `person` one of whose session it is, and
-- `sealed` what it was begun with, which nobody can read without the browser. Rows go when a session ends or its time is over.
CREATE TABLE placet.console_sessions (
  key      bytea  PRIMARY KEY,
  person   bytea  NOT NULL,
  began_ms bigint NOT NULL,
  used_ms  bigint NOT NULL,
  sealed   bytea  NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX console_sessions_person ON placet.console_sessions (person, began_ms);
