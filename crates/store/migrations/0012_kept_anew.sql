-- How often a content was kept again while it was there: a deletion that saw another number finds that somebody names it from now on.
ALTER TABLE placet.content ADD COLUMN kept_anew bigint NOT NULL DEFAULT 0;
