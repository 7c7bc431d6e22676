-- Enqueues a job inside the caller's transaction: it exists if and when that commits. Touches no shared row, so an open
-- transaction holds up nobody. Returns the job's id.
--
-- What is NULL comes from the kind. `kind` and `queue` must be registered. Names: up to 128 letters, digits and
-- . _ - : @ + =, starting with a letter or digit. `priority`: critical, high, medium or low. `unique_scope`: pending,
-- pending_or_running, or a span like '1 hour'; `on_conflict`: keep, replace or hasten. A job that turns out not to be
-- acceptable when it is taken over becomes a dead letter.
CREATE OR REPLACE FUNCTION tidegate_v1.enqueue(
    kind         text,
    payload      jsonb,
    queue        text,
    tenant       text,
    group_key    text,
    priority     text,
    run_at       timestamptz,
    delay        interval,
    unique_key   text,
    unique_scope text,
    on_conflict  text,
    max_attempts integer,
    timeout      interval,
    id           uuid,
    trace        text,
    wake         boolean
) RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name_pattern constant text := '^[A-Za-z0-9][A-Za-z0-9._:@+=-]{0,127}$';
    job_id uuid := id;
    at timestamptz := coalesce(run_at, clock_timestamp() + delay);
    period interval;
    uniqueness jsonb;
BEGIN
    IF payload IS NULL THEN
        RAISE EXCEPTION 'the payload is NULL' USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2004',
            HINT = 'for a job without a payload pass ''null''::jsonb or ''{}''::jsonb';
    END IF;
    IF octet_length(payload::text) > 1048576 THEN
        RAISE EXCEPTION 'the payload has % bytes', octet_length(payload::text)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2004', HINT = 'at most 1 MiB is allowed';
    END IF;
    IF jsonb_path_exists(payload, 'strict $.**{64 to last} ? (@.type() == "array" || @.type() == "object")') THEN
        RAISE EXCEPTION 'the payload is nested too deeply'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2004', HINT = 'at most 64 levels are allowed';
    END IF;
    IF NOT EXISTS (SELECT FROM tidegate.kinds AS k WHERE k.name = enqueue.kind) THEN
        RAISE EXCEPTION 'kind "%" is not registered', kind
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2003',
            HINT = 'a worker that handles the kind registers it, or use `tidegate kinds set NAME`';
    END IF;
    IF queue IS NOT NULL AND NOT EXISTS (SELECT FROM tidegate.queues AS q WHERE q.name = enqueue.queue) THEN
        RAISE EXCEPTION 'queue "%" is not registered', queue
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2002',
            HINT = 'a worker''s handlers register their queues, or use `tidegate queues set NAME`';
    END IF;
    IF tenant !~ name_pattern OR (group_key <> '' AND group_key !~ name_pattern) THEN
        RAISE EXCEPTION 'a tenant or group is not acceptable'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2001',
            HINT = 'use letters, digits and . _ - : @ + =, at most 128 of them, starting with a letter or a digit';
    END IF;
    IF priority NOT IN ('critical', 'high', 'medium', 'low') THEN
        RAISE EXCEPTION 'priority "%" is not known', priority
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2009', HINT = 'critical, high, medium or low';
    END IF;
    IF at > clock_timestamp() + interval '3652 days' OR timeout NOT BETWEEN interval '1 ms' AND interval '7 days' THEN
        RAISE EXCEPTION 'a time or span is not acceptable'
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2005',
            HINT = 'a job can be put off by up to ten years, and run for up to seven days';
    END IF;
    IF max_attempts NOT BETWEEN 1 AND 100 THEN
        RAISE EXCEPTION 'max_attempts is %', max_attempts
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2008', HINT = 'between 1 and 100';
    END IF;
    IF unique_key IS NOT NULL THEN
        IF octet_length(unique_key) NOT BETWEEN 1 AND 512 OR unique_key ~ '[[:cntrl:]]' THEN
            RAISE EXCEPTION 'a unique key of % bytes is not acceptable', octet_length(unique_key)
                USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2001',
                HINT = '1 to 512 bytes without control characters are allowed';
        END IF;
        IF coalesce(on_conflict, 'keep') NOT IN ('keep', 'replace', 'hasten') THEN
            RAISE EXCEPTION 'on_conflict "%" is not known', on_conflict
                USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2009', HINT = 'keep, replace or hasten';
        END IF;
        IF coalesce(unique_scope, 'pending_or_running') NOT IN ('pending', 'pending_or_running') THEN
            period := unique_scope::interval;
            IF period NOT BETWEEN interval '1 ms' AND interval '3652 days' THEN
                RAISE EXCEPTION 'a unique period is not acceptable'
                    USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2005', HINT = 'up to ten years';
            END IF;
        END IF;
        uniqueness := jsonb_build_object(
            'key', unique_key,
            'scope', CASE
                WHEN period IS NULL THEN to_jsonb(coalesce(unique_scope, 'pending_or_running'))
                ELSE jsonb_build_object('period_ms', (extract(epoch FROM period) * 1000)::bigint)
            END,
            'on_conflict', coalesce(on_conflict, 'keep'));
    END IF;
    IF octet_length(trace) > 1024 THEN
        RAISE EXCEPTION 'trace has % bytes', octet_length(trace)
            USING ERRCODE = 'invalid_parameter_value', DETAIL = 'TG2009', HINT = 'at most 1024 are allowed';
    END IF;
    IF job_id IS NULL THEN
        -- UUIDv7: the time in milliseconds, then random bits.
        job_id := encode(
            set_bit(set_bit(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6),
                52, 1), 53, 1),
            'hex')::uuid;
    END IF;
    INSERT INTO tidegate.inbox (job) VALUES (jsonb_strip_nulls(jsonb_build_object(
        'id', job_id,
        'id_given', id IS NOT NULL,
        'kind', kind,
        'queue', queue,
        'tenant', tenant,
        'group', group_key,
        'priority', priority,
        'run_at', (extract(epoch FROM at) * 1000)::bigint,
        'timeout_ms', (extract(epoch FROM timeout) * 1000)::bigint,
        'max_attempts', max_attempts,
        'unique', uniqueness,
        'trace', trace
    )) || jsonb_build_object('payload', payload));
    IF wake THEN
        PERFORM pg_notify('tidegate', 'i');
    END IF;
    RETURN job_id;
END
$$
