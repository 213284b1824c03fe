//! Random steps, chosen from the state of the model.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use super::state::{Model, Step, look, target};

fn fork_name() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("main"), 3 => Just("f1"), 2 => Just("f2")].prop_map(str::to_owned)
}

fn new_path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "dir", "é\n", ".wh.x"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn host_path() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["top", "sub/x", "sub/y", "many/n07", "many/n33", "many/new"])
        .prop_map(str::to_owned)
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::new()).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        // Existing paths, so that most steps find the path that they name.
        let known: BTreeSet<String> =
            state.heads.values().flat_map(|head| state.versions[*head].tree.keys().cloned()).collect();
        let mut known: Vec<String> = known.into_iter().collect();
        known.push(String::new());
        let path = move || prop_oneof![3 => prop::sample::select(known.clone()), 2 => new_path()].boxed();
        let file_path = || path().prop_filter("a file has a name", |path| !path.is_empty());
        let checkpoint = || prop::sample::select(vec!["c1", "c2"]).prop_map(str::to_owned);
        prop_oneof![
            6 => (fork_name(), file_path(), 0..300_usize, prop::option::of(Just(0o755_u32)))
                .prop_map(|(fork, path, length, mode)| Step::Write { fork, path, length, mode }),
            3 => (fork_name(), file_path(), any::<bool>())
                .prop_map(|(fork, path, parents)| Step::Mkdir { fork, path, parents }),
            4 => (fork_name(), path(), any::<bool>())
                .prop_map(|(fork, path, recursive)| Step::Remove { fork, path, recursive }),
            5 => (fork_name(), path(), path()).prop_map(|(fork, from, to)| Step::Move { fork, from, to }),
            4 => (fork_name(), path(), path(), any::<bool>())
                .prop_map(|(fork, from, to, recursive)| Step::Copy { fork, from, to, recursive }),
            3 => (fork_name(), fork_name()).prop_map(|(name, from)| Step::ForkCreate { name, from }),
            1 => (fork_name(), any::<bool>()).prop_map(|(name, forced)| Step::ForkDelete { name, forced }),
            3 => (fork_name(), checkpoint(), any::<bool>())
                .prop_map(|(fork, name, automatic)| Step::CheckpointSave { fork, name, automatic }),
            1 => (fork_name(), checkpoint()).prop_map(|(fork, name)| Step::CheckpointDelete { fork, name }),
            2 => (fork_name(), fork_name(), checkpoint())
                .prop_map(|(fork, from, name)| Step::CheckpointRestore { fork, from, name }),
            3 => (fork_name(), fork_name(), 0..6_usize)
                .prop_map(|(fork, from, back)| Step::Restore { fork, from, back }),
            2 => (0..4_u64, prop::option::of(fork_name())).prop_map(|(last, fork)| Step::Prune { last, fork }),
            2 => Just(Step::Gc),
            2 => host_path().prop_map(|path| Step::HostWrite { path }),
            1 => host_path().prop_map(|path| Step::HostRemove { path }),
            4 => fork_name().prop_map(|fork| Step::Import { fork }),
            4 => (1..12_u8, fork_name(), prop::option::of(fork_name()), prop::option::of(1..300_usize))
                .prop_map(|(number, fork, new_fork, length)| Step::Land { number, fork, new_fork, length }),
        ]
        .boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        match step {
            // Whether a copy over an equal file changes anything depends on times, which the model does not have.
            Step::Copy { fork, from, to, .. } => state.heads.get(fork).is_none_or(|head| {
                let tree = &state.versions[*head].tree;
                target(tree, from, to).map_or(true, |(_, target)| look(tree, &target).is_none())
            }),
            Step::Write { .. }
            | Step::Mkdir { .. }
            | Step::Remove { .. }
            | Step::Move { .. }
            | Step::ForkCreate { .. }
            | Step::ForkDelete { .. }
            | Step::CheckpointSave { .. }
            | Step::CheckpointDelete { .. }
            | Step::CheckpointRestore { .. }
            | Step::Restore { .. }
            | Step::Prune { .. }
            | Step::Gc
            | Step::HostWrite { .. }
            | Step::HostRemove { .. }
            | Step::Land { .. }
            | Step::Import { .. } => true,
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.outcome = state.step(step);
        state
    }
}
