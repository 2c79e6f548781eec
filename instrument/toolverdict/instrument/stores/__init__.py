"""What outlives a call: approvals, idempotency keys, audit records. Each is one SQLite file."""
