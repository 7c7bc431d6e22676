#!/usr/bin/env python3
"""A job that exists exactly if the order does: both are written in one transaction.

    python3 examples/sql/transactional.py "$DATABASE_URL" acme             # commits
    python3 examples/sql/transactional.py "$DATABASE_URL" acme --fail      # rolls back: neither order nor job

Python's standard library has no Postgres client, so this talks to `psql` through a pipe; with a client of your choice
the SQL is the same. The kind must be registered: a worker that handles it does that.
"""

import argparse
import subprocess
import sys


class Database:
    """One psql session: statements go in, rows come out."""

    END = "-- end of answer --"

    def __init__(self, url):
        self.psql = subprocess.Popen(
            ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, sql, **values):
        """Runs a statement. Values are quoted by psql: write them as :'name'."""
        for name, value in values.items():
            quoted = "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
            self.psql.stdin.write(f"\\set {name} {quoted}\n")
        self.psql.stdin.write(f"{sql};\n\\echo {self.END}\n")
        self.psql.stdin.flush()
        rows = []
        for line in self.psql.stdout:
            if line.rstrip("\n") == self.END:
                return rows
            rows.append(line.rstrip("\n"))
        raise RuntimeError("the statement failed; nothing of the transaction is kept")

    def close(self):
        self.psql.stdin.close()
        return self.psql.wait()


def main():
    arguments = argparse.ArgumentParser(description="Writes an order and the job that sends its invoice.")
    arguments.add_argument("url")
    arguments.add_argument("customer")
    arguments.add_argument("--fail", action="store_true", help="fail after both are written")
    args = arguments.parse_args()

    database = Database(args.url)
    database.run("SET client_min_messages = warning")
    database.run(
        "CREATE TABLE IF NOT EXISTS orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)"
    )
    database.run("BEGIN")
    try:
        [order] = database.run("INSERT INTO orders (customer) VALUES (:'customer') RETURNING id", customer=args.customer)
        [job] = database.run(
            "SELECT tidegate.enqueue('invoice.send', jsonb_build_object('order', :'order'::bigint), tenant => :'customer')",
            order=order,
            customer=args.customer,
        )
        if args.fail:
            raise RuntimeError("the payment was declined")
        database.run("COMMIT")
        print(f"order {order}, job {job}")
    except RuntimeError as error:
        database.close()  # whatever was open is rolled back
        sys.exit(f"nothing was written: {error}")
    database.close()


if __name__ == "__main__":
    main()
