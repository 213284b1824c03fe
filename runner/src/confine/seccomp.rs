//! Selects and installs the seccomp filter of a command. build.rs compiles the programs.
//!
//! The supervisor answers and counts refused calls. If the kernel does not support a listener, the same program
//! answers the calls itself.

use std::os::fd::OwnedFd;

use avfs_request::{NestedUserns, SeccompProfile};

use crate::sys::{Errno, Instruction, Result, install_filter, install_filter_with_listener};

include!(concat!(env!("OUT_DIR"), "/filters.rs"));

#[cfg(target_arch = "aarch64")]
use AARCH64 as PROGRAMS;
#[cfg(target_arch = "x86_64")]
use X86_64 as PROGRAMS;

const fn op(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// The BPF instruction that returns an action.
const RETURN: u16 = 0x06;

#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;

/// Refuses changes of the processor affinity. A second filter, which is also used when the main one is off.
static PINNED: [Instruction; 8] = [
    op(0x20, 0, 0, 4),
    op(0x15, 1, 0, ARCH),
    op(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    op(0x20, 0, 0, 0),
    // x32 calls have the same number except for this bit.
    op(0x54, 0, 0, !0x4000_0000),
    op(0x15, 0, 1, SCHED_SETAFFINITY),
    op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | 1),
    op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
];
#[cfg(target_arch = "aarch64")]
const SCHED_SETAFFINITY: u32 = 122;
#[cfg(target_arch = "x86_64")]
const SCHED_SETAFFINITY: u32 = 203;

/// Prevents this process and its descendants from changing their processor affinity.
pub fn pin() -> Result<()> {
    install_filter(&PINNED)
}

/// Whether the command may create Unix domain sockets, through which services of the host are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixSockets {
    Allowed,
    Refused,
}

/// Whether the supervisor is notified of the calls in [`avfs_seccomp::WATCHED_CALLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    Yes,
    No,
}

/// The return value of a program for one of those calls.
const WATCH: u32 = libc::SECCOMP_RET_ALLOW | 1;

/// A filter that is ready to be installed.
pub struct Filter {
    notifying: Vec<Instruction>,
    plain: &'static [Instruction],
}

impl Filter {
    /// `None` for the profile without a filter.
    pub fn choose(
        profile: SeccompProfile,
        sockets: UnixSockets,
        userns: NestedUserns,
        renames: Notified,
    ) -> Option<Self> {
        let plain = program(&PROGRAMS, profile, sockets, userns)?;
        Some(Self {
            notifying: plain.iter().map(|instruction| with_notification(instruction, renames)).collect(),
            plain,
        })
    }

    /// Installs the filter for this process and its descendants. Returns the listener, if the kernel supports one.
    pub fn install(&self) -> Result<Option<OwnedFd>> {
        match install_filter_with_listener(&self.notifying) {
            // Another listener is already installed, or the kernel is too old for listeners.
            Err(Errno::BUSY | Errno::INVAL) => install_filter(self.plain).map(|()| None),
            other => other.map(Some),
        }
    }
}

fn program(
    programs: &[&'static [Instruction]; 8],
    profile: SeccompProfile,
    sockets: UnixSockets,
    userns: NestedUserns,
) -> Option<&'static [Instruction]> {
    let strict = match profile {
        SeccompProfile::Default => 0,
        SeccompProfile::Strict => 4,
        SeccompProfile::Off => return None,
    };
    let unix_refused = match sockets {
        UnixSockets::Allowed => 0,
        UnixSockets::Refused => 2,
    };
    let nesting = match userns {
        NestedUserns::Refused => 0,
        NestedUserns::Allowed => 1,
    };
    programs.get(strict + unix_refused + nesting).copied()
}

/// Converts refusals to notifications. ENOSYS is for calls that programs try routinely, and is still returned by the
/// filter itself.
fn with_notification(instruction: &Instruction, renames: Notified) -> Instruction {
    let Instruction { code, jt, jf, k } = *instruction;
    if code == RETURN && k == WATCH {
        let action = match renames {
            Notified::Yes => libc::SECCOMP_RET_USER_NOTIF,
            Notified::No => libc::SECCOMP_RET_ALLOW,
        };
        return op(code, jt, jf, action);
    }
    let action = k & libc::SECCOMP_RET_ACTION_FULL;
    let is_enosys = k & libc::SECCOMP_RET_DATA == libc::ENOSYS.unsigned_abs();
    if code == RETURN && action == libc::SECCOMP_RET_ERRNO && !is_enosys {
        return op(code, jt, jf, libc::SECCOMP_RET_USER_NOTIF);
    }
    op(code, jt, jf, k)
}

#[cfg(test)]
mod tests {
    use avfs_seccomp::{Nesting, REFUSALS, Refusal, Reported, STRICT_CALLS, UNIX_REFUSAL, When};

    use super::super::interpreter::{Call, run};
    use super::super::numbers::{LAST, name_on_aarch64, name_on_x86_64};
    use super::*;

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | 38;
    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | 1;
    const AUDIT_X86_64: u32 = 0xc000_003e;
    const AUDIT_AARCH64: u32 = 0xc000_00b7;
    const AUDIT_I386: u32 = 0x4000_0003;

    /// The programs and numbers of one architecture.
    struct Machine {
        arch: u32,
        programs: &'static [&'static [Instruction]; 8],
        name: fn(u32) -> Option<&'static str>,
    }

    const MACHINES: [Machine; 2] = [
        Machine { arch: AUDIT_X86_64, programs: &X86_64, name: name_on_x86_64 },
        Machine { arch: AUDIT_AARCH64, programs: &AARCH64, name: name_on_aarch64 },
    ];

    impl Machine {
        fn calls(&self) -> impl Iterator<Item = (&'static str, u32)> {
            (0..=LAST).filter_map(|number| Some(((self.name)(number)?, number)))
        }

        fn number(&self, name: &str) -> Option<u32> {
            self.calls().find(|(known, _)| *known == name).map(|(_, number)| number)
        }

        fn answer(&self, choice: Choice, number: u32, arguments: [u64; 6]) -> u32 {
            let program = program(self.programs, choice.0, choice.1, choice.2).unwrap();
            match run(program, &Call { number, arch: self.arch, arguments }) {
                WATCH => ALLOW,
                other => other,
            }
        }
    }

    type Choice = (SeccompProfile, UnixSockets, NestedUserns);

    const PLAIN: Choice = (SeccompProfile::Default, UnixSockets::Allowed, NestedUserns::Refused);

    fn choices() -> Vec<Choice> {
        let mut choices = Vec::new();
        for profile in [SeccompProfile::Default, SeccompProfile::Strict] {
            for sockets in [UnixSockets::Allowed, UnixSockets::Refused] {
                choices.extend(NestedUserns::ALL.iter().map(|userns| (profile, sockets, *userns)));
            }
        }
        choices
    }

    fn with(argument: u8, value: u64) -> [u64; 6] {
        let mut arguments = [0; 6];
        arguments[usize::from(argument)] = value;
        arguments
    }

    /// Examples of refused arguments and of allowed ones.
    fn examples(refusal: &Refusal) -> (Vec<[u64; 6]>, Vec<[u64; 6]>) {
        let all = |argument, values: &[u32]| values.iter().map(|v| with(argument, u64::from(*v))).collect();
        // The upper 32 bits are ignored by the kernel and may have any value.
        let high = |examples: Vec<[u64; 6]>, argument: u8| {
            let mut more = examples.clone();
            more.extend(examples.into_iter().map(|mut arguments| {
                arguments[usize::from(argument)] |= 0xdead_beef_0000_0000;
                arguments
            }));
            more
        };
        let others = |argument, values: &[u32]| -> Vec<[u64; 6]> {
            (0..64).filter(|v| !values.contains(v)).map(|v| with(argument, u64::from(v))).collect()
        };
        match refusal.when {
            When::Always => (vec![[0; 6], [u64::MAX; 6]], vec![]),
            When::AnyBit { argument, bits } => {
                let mut refused: Vec<_> = all(argument, bits);
                refused.extend(bits.iter().map(|bit| with(argument, u64::from(bit | 0x100))));
                (high(refused, argument), high(vec![[0; 6], with(argument, 0x0011_0f11)], argument))
            }
            When::OneOf { argument, values } => {
                (high(all(argument, values), argument), high(others(argument, values), argument))
            }
            When::NoneOf { argument, values } => {
                (high(others(argument, values), argument), high(all(argument, values), argument))
            }
        }
    }

    #[test]
    fn every_refusal_is_enforced_and_other_arguments_are_allowed() {
        for machine in &MACHINES {
            for choice in choices() {
                for refusal in REFUSALS {
                    for name in refusal.calls {
                        let Some(number) = machine.number(name) else { continue };
                        let replaced = choice.1 == UnixSockets::Refused && UNIX_REFUSAL.calls.contains(name);
                        let refusal = if replaced { &UNIX_REFUSAL } else { refusal };
                        let (refused, allowed) = examples(refusal);
                        let let_through =
                            choice.2 == NestedUserns::Allowed && refusal.nesting == Nesting::Needed;
                        let no = libc::SECCOMP_RET_ERRNO | u32::from(refusal.answer.number());
                        for arguments in refused {
                            let expected = if let_through { ALLOW } else { no };
                            let found = machine.answer(choice, number, arguments);
                            assert_eq!(found, expected, "{name} {arguments:x?} {choice:?}");
                        }
                        for arguments in allowed {
                            let found = machine.answer(choice, number, arguments);
                            assert_eq!(found, ALLOW, "{name} {arguments:x?} {choice:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn unnamed_calls_are_allowed_by_default_and_refused_by_strict() {
        let named = |name: &str| REFUSALS.iter().any(|refusal| refusal.calls.contains(&name));
        for machine in &MACHINES {
            for choice in choices() {
                for (name, number) in machine.calls().filter(|(name, _)| !named(name)) {
                    let open = choice.0 == SeccompProfile::Default || STRICT_CALLS.contains(&name);
                    let expected = if open { ALLOW } else { EPERM };
                    assert_eq!(machine.answer(choice, number, [7; 6]), expected, "{name} {choice:?}");
                }
            }
        }
    }

    #[test]
    fn terminal_input_injection_is_refused_regardless_of_the_high_bits() {
        let ioctl = MACHINES[0].number("ioctl").unwrap();
        for request in [0x5412, 0x1_0000_5412, 0xffff_ffff_0000_541c] {
            assert_eq!(MACHINES[0].answer(PLAIN, ioctl, with(1, request)), EPERM);
        }
        // TCGETS, TIOCGWINSZ.
        for request in [0x5401, 0x5413] {
            assert_eq!(MACHINES[0].answer(PLAIN, ioctl, with(1, request)), ALLOW);
        }
    }

    #[test]
    fn other_architectures_are_killed_and_x32_fails_with_enosys() {
        for machine in &MACHINES {
            for choice in choices() {
                let code = program(machine.programs, choice.0, choice.1, choice.2).unwrap();
                let other = MACHINES.iter().map(|other| other.arch).filter(|arch| *arch != machine.arch);
                for arch in other.chain([AUDIT_I386, 0]) {
                    for number in [0, 1, 21, 425] {
                        let call = Call { number, arch, arguments: [0; 6] };
                        assert_eq!(run(code, &call), KILL);
                    }
                }
                // x32 numbers, future ones, and -1, with which a tracer skips a call.
                for number in [0x4000_0000, 0x4000_0001, 0x4000_0209, 470, 512, 0x8000_0000, u32::MAX] {
                    assert_eq!(machine.answer(choice, number, [0; 6]), ENOSYS, "{number:#x}");
                }
            }
        }
        // The gap between the old and the new numbers is unassigned.
        assert_eq!(MACHINES[0].answer(PLAIN, 400, [0; 6]), ENOSYS);
    }

    #[test]
    fn the_numbers_match_this_machine() {
        let here = if cfg!(target_arch = "x86_64") { &MACHINES[0] } else { &MACHINES[1] };
        for (name, number) in [
            ("read", libc::SYS_read),
            ("clone3", libc::SYS_clone3),
            ("mount", libc::SYS_mount),
            ("bpf", libc::SYS_bpf),
            ("io_uring_setup", libc::SYS_io_uring_setup),
            ("socket", libc::SYS_socket),
            ("ioctl", libc::SYS_ioctl),
            ("mseal", libc::SYS_mseal),
        ] {
            assert_eq!(here.number(name).map(i64::from), Some(number), "{name}");
        }
        let mut sorted: Vec<u32> = here.calls().map(|(_, number)| number).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), here.calls().count(), "two calls have one number");
    }

    #[test]
    fn a_pinned_process_cannot_change_its_affinity() {
        let answer = |number, arch| run(&PINNED, &Call { number, arch, arguments: [0; 6] });
        assert_eq!(i64::from(SCHED_SETAFFINITY), libc::SYS_sched_setaffinity);
        for number in [SCHED_SETAFFINITY, SCHED_SETAFFINITY | 0x4000_0000] {
            assert_eq!(answer(number, ARCH), EPERM);
        }
        assert_eq!(answer(SCHED_SETAFFINITY + 1, ARCH), ALLOW);
        assert_eq!(answer(SCHED_SETAFFINITY, AUDIT_I386), KILL);
    }

    #[test]
    fn only_notified_calls_differ_from_the_plain_program() {
        let filter = Filter::choose(PLAIN.0, PLAIN.1, PLAIN.2, Notified::Yes).unwrap();
        let arch = if cfg!(target_arch = "x86_64") { AUDIT_X86_64 } else { AUDIT_AARCH64 };
        let here = if cfg!(target_arch = "x86_64") { &MACHINES[0] } else { &MACHINES[1] };
        for refusal in REFUSALS {
            for name in refusal.calls {
                let Some(number) = here.number(name) else { continue };
                for arguments in examples(refusal).0 {
                    let call = Call { number, arch, arguments };
                    let expected = match refusal.reported {
                        Reported::Yes => libc::SECCOMP_RET_USER_NOTIF,
                        Reported::No => ENOSYS,
                    };
                    assert_eq!(run(&filter.notifying, &call), expected, "{name}");
                }
            }
        }
        for name in avfs_seccomp::WATCHED_CALLS {
            let Some(number) = here.number(name) else { continue };
            let call = Call { number, arch, arguments: [0; 6] };
            assert_eq!(run(&filter.notifying, &call), libc::SECCOMP_RET_USER_NOTIF, "{name}");
            let unwatched = Filter::choose(PLAIN.0, PLAIN.1, PLAIN.2, Notified::No).unwrap();
            assert_eq!(run(&unwatched.notifying, &call), ALLOW, "{name}");
            assert_eq!(run(unwatched.plain, &call) & libc::SECCOMP_RET_ACTION_FULL, ALLOW, "{name}");
        }
        let read = Call { number: here.number("read").unwrap(), arch, arguments: [0; 6] };
        assert_eq!(run(&filter.notifying, &read), ALLOW);
        assert_eq!(run(&filter.notifying, &Call { arch: AUDIT_I386, ..read }), KILL);
        assert!(Filter::choose(SeccompProfile::Off, PLAIN.1, PLAIN.2, Notified::No).is_none());
    }

    /// The errno that a refused call returns after filters were installed, as the exit code of a child.
    fn errno_after(install: impl FnOnce() -> Result<()>) -> Option<i32> {
        let child = crate::sys::clone_process(crate::sys::CloneFlags::default(), || {
            let installed = rustix::thread::set_no_new_privs(true).and_then(|()| install());
            let called = installed
                .and_then(|()| rustix::mount::unmount(c"/nonexistent", rustix::mount::UnmountFlags::empty()));
            u8::try_from(called.map_or_else(Errno::raw_os_error, |()| 0)).unwrap_or(u8::MAX)
        });
        let child = rustix::process::Pid::from_raw(child.unwrap());
        let ended = rustix::process::waitpid(child, rustix::process::WaitOptions::empty()).unwrap();
        ended.and_then(|(_, status)| status.exit_status())
    }

    #[test]
    fn a_call_fails_after_the_listener_is_closed() {
        let filter = Filter::choose(PLAIN.0, PLAIN.1, PLAIN.2, Notified::Yes).unwrap();
        assert_eq!(errno_after(|| filter.install().map(drop)), Some(libc::ENOSYS));
    }

    #[test]
    fn with_another_listener_installed_the_filter_answers_itself() {
        let filter = Filter::choose(PLAIN.0, PLAIN.1, PLAIN.2, Notified::Yes).unwrap();
        let twice = || {
            let listener = filter.install()?;
            let second = filter.install()?;
            // Otherwise a call would hang: nothing reads from the listener.
            std::mem::forget(listener);
            if second.is_some() { Err(Errno::EXIST) } else { Ok(()) }
        };
        assert_eq!(errno_after(twice), Some(libc::EPERM));
    }
}
