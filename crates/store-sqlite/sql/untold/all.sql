-- Jobs of whose end somebody has yet to be told; read once at start. No params.
SELECT seq, id, ending FROM untold ORDER BY seq
