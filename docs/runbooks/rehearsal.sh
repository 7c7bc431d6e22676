# A server whose gates are in use, to rehearse the runbooks on gates: one account of `netsuite` with both slots held and one
# job in line, and a bucket of `shopify` that is nearly empty. `scripts/check-guides` runs it before each of them.
cat > gates.toml <<'EOF'
[[gates.netsuite.gates]]
name = "slots"
per = ["account"]
gate.slots = { limit = 2 }

[[gates.netsuite.gates]]
name = "health"
gate.breaker = { failures = 10, open = "60s" }

[[gates.shopify.gates]]
name = "points"
per = ["account"]
gate.reported = { capacity = 100, restore_per_s = 50, known = true }
EOF
tidegate serve --gates-file gates.toml &
export TIDEGATE_STORE=http://127.0.0.1:7433
curl --silent --retry 20 --retry-connrefused --retry-delay 1 $TIDEGATE_STORE/ready
admit() {
  curl --silent --fail-with-body --header 'content-type: application/json' $TIDEGATE_STORE/v1/admissions --data "$1"
}
for n in 1 2 3; do
  admit "{\"connector\":\"netsuite\",\"account\":\"tstdrv\",\"tenant\":\"acme\",\"holder\":\"job_$n\",\"lease_ms\":600000}"
done
admit '{"connector":"shopify","account":"acme-shop","tenant":"acme","holder":"job_4","cost":90}'
