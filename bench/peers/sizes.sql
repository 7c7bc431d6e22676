-- Sizes of all tables of a database with their indexes, in MB, as one line of JSON. Asked once a minute by `run`.
select json_build_object('total_mb', coalesce(round(sum(mb), 1), 0), 'tables_mb', json_object_agg(name, round(mb, 1)))
from (select format('%I.%I', s.schemaname, s.relname) as name, pg_total_relation_size(s.relid) / 1048576.0 as mb
      from pg_stat_user_tables s) as sized
