-- Changes dead-letter sides. Params: numbers, letters. Index: done_by_seq.
UPDATE tidegate.done AS d SET letter = n.letter
FROM unnest($1::bigint[], $2::text[]) AS n (seq, letter)
WHERE d.seq = n.seq
