"""Parts of phases: groups that are not finite, and numbers of an update that a practitioner would watch."""
