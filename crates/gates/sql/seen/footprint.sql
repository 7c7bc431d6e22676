-- How large the gates are: bytes of their tables and indexes, and keys, leases and places. One row: bytes, keys.
SELECT
    (
        pg_total_relation_size('tidegate.gate_partitions'::regclass)
        + pg_total_relation_size('tidegate.gate_domains'::regclass)
        + pg_total_relation_size('tidegate.gate_sets'::regclass)
        + pg_total_relation_size('tidegate.gate_changes'::regclass)
        + pg_total_relation_size('tidegate.gate_seen'::regclass)
    )::bigint,
    (SELECT coalesce(sum(keys + leases + places), 0)::bigint FROM tidegate.gate_partitions)
