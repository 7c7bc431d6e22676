-- Marks many jobs as finished. The rows follow in binary form.
COPY tidegate.done (seq, at, queue, attempt, state, result, letter) FROM STDIN (FORMAT binary)
