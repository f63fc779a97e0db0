//! Quantities as people write them in a playbook, parsed exactly or refused.
