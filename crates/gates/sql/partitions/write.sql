-- Writes the state of a partition that the transaction has locked. $1: domain; $2: partition; $3: mark; $4: layout;
-- $5: state; $6: time of use; $7: when something lapses next; $8-$11: keys, leases, of these in quarantine, places.
-- One row is changed. By the primary key; HOT, for nothing that changes is indexed.
UPDATE tidegate.gate_partitions
SET marks = (array_prepend($3, marks))[1:8],
    layout = $4,
    state = $5,
    used_at = $6,
    due_at = $7,
    keys = $8,
    leases = $9,
    quarantined = $10,
    places = $11
WHERE domain = $1 AND part = $2
