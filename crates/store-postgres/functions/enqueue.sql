-- Enqueues a job inside the caller's transaction, with the newest version of the function. Pass what differs by name:
--   SELECT tidegate.enqueue('invoice.send', '{"order": 7}', tenant => 'acme', run_at => now() + interval '1 hour');
CREATE OR REPLACE FUNCTION tidegate.enqueue(
    kind         text,
    payload      jsonb,
    queue        text        DEFAULT NULL,
    tenant       text        DEFAULT NULL,
    group_key    text        DEFAULT NULL,
    priority     text        DEFAULT NULL,
    run_at       timestamptz DEFAULT NULL,
    delay        interval    DEFAULT NULL,
    unique_key   text        DEFAULT NULL,
    unique_scope text        DEFAULT NULL,
    on_conflict  text        DEFAULT NULL,
    max_attempts integer     DEFAULT NULL,
    timeout      interval    DEFAULT NULL,
    id           uuid        DEFAULT NULL,
    trace        text        DEFAULT NULL,
    wake         boolean     DEFAULT true
) RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL UNSAFE
AS $$SELECT tidegate_v1.enqueue(kind, payload, queue, tenant, group_key, priority, run_at, delay, unique_key,
    unique_scope, on_conflict, max_attempts, timeout, id, trace, wake)$$
