"""Planning of campaigns: runs, CPU placement, and application identity. Pure."""
