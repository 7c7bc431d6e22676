-- A job that exists exactly if the order does: both are written in one transaction.
--
--     psql "$DATABASE_URL" -v customer=acme -f examples/sql/transactional.sql
--
-- The kind must be registered: a worker that handles it does that, or `tidegate kinds set invoice.send --queue billing`.
\set ON_ERROR_STOP on

CREATE TABLE IF NOT EXISTS orders (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL
);

BEGIN;
INSERT INTO orders (customer) VALUES (:'customer') RETURNING id \gset order_
SELECT tidegate.enqueue('invoice.send', jsonb_build_object('order', :order_id), tenant => :'customer') AS job;
COMMIT;
