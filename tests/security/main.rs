//! Attacks by hostile commands, one file per attempt: the attack, the mechanism that stops it, and a control that
//! shows that the attempt succeeds without that mechanism.
//!
//! No attempt is aimed at the machine the suite runs on: see [`attempt`].

#![expect(clippy::unwrap_used, reason = "a harness that cannot continue should fail its test at once")]

#[allow(dead_code, clippy::allow_attributes, reason = "shared with the other end-to-end suite")]
#[path = "../e2e/env.rs"]
mod env;
#[allow(dead_code, clippy::allow_attributes, reason = "shared with the other end-to-end suite")]
#[path = "../e2e/person.rs"]
mod person;
#[path = "../support/schema.rs"]
mod schema;
#[allow(dead_code, clippy::allow_attributes, reason = "shared with the other end-to-end suite")]
#[path = "../e2e/shared.rs"]
mod shared;
#[path = "../support/mod.rs"]
mod support;

mod abstract_socket;
mod approved_network;
mod attempt;
mod cached_worktree;
mod capabilities;
mod chroot_games;
mod cleaned_workspace;
mod connect_smuggling;
mod deaf_to_term;
mod deep_directories;
mod descriptors;
mod devices;
mod directory_fd;
mod disk_fill;
mod dns_rebinding;
mod docker_socket;
mod endless_versions;
mod environment;
mod files_for_the_host;
mod first_process;
mod foreign_request;
mod forged_item;
mod forged_worktree;
mod fork_bomb;
mod found_files;
mod given_files;
mod hardlink_to_vault;
mod hidden_characters;
mod home_and_keys;
mod host_metadata;
mod host_network;
mod host_processes;
mod host_writes;
mod inherited_fd;
mod inode_exhaustion;
mod inotify;
mod io_uring;
mod kernel_settings;
mod keyring;
mod kill_everybody;
mod kill_group;
mod lab;
mod leases;
mod leftover_processes;
mod live_socket;
mod mapped_addresses;
mod memfd_exec;
mod memory_bomb;
mod metadata_address;
mod mount_points;
mod mounts;
mod nested_userns;
mod own_state;
mod own_terminal_input;
mod permanent_approval;
mod personality;
mod planted_vault;
mod proxy_death;
mod ptrace_init;
mod rare_calls;
mod rare_sockets;
mod redirected_writes;
mod release_agent;
mod renamed_link;
mod self_exe;
mod set_ids_on_host;
mod setuid_in_cache;
mod setuid_program;
mod shared_memory;
mod shown_socket;
mod sparse_file;
mod stream_mode;
mod stream_reopen;
mod swap_in_capture;
mod swapped_link;
mod swept_directories;
mod symlink_in_capture;
mod symlink_in_run;
mod tiny_files;
mod typed_input;
mod vault_above;
mod vault_companions;
mod vault_journal;
mod vsock;
mod widened_request;
