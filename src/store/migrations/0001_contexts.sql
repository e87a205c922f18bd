-- One row for each context; times are seconds since 1970. `uid` is never used again, an owner's `id` may be.
CREATE TABLE contexts (
    uid        TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    id         TEXT   NOT NULL,
    settings   TEXT   NOT NULL,
    created    BIGINT NOT NULL,
    used       BIGINT NOT NULL,
    expires_in BIGINT,
    events     BIGINT NOT NULL,
    UNIQUE (owner, id)
);

-- One row for each time something happened to a context: `count` events from number `first` on, as a JSON array, and
-- what the update weighed, where it was one.
CREATE TABLE batches (
    uid     TEXT   NOT NULL,
    first   BIGINT NOT NULL,
    count   BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    records TEXT   NOT NULL,
    cost    TEXT,
    PRIMARY KEY (uid, first)
);
