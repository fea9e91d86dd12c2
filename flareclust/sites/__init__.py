"""A site's own files: configuration, policy, permissions of its kit, account of privacy; and their check."""
