//! Compiles the seccomp profiles to BPF, so that a run only has to choose a program and install it.
//!
//! A program checks the architecture, then does a binary search by the system call number (the kernel evaluates the
//! filter for every number when it is installed, so the depth determines the cost of a run), then has a block for
//! each call whose arguments matter. seccompiler generates those blocks. This file adds what it does not support:
//! several return values in one filter, and refusing x32.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

#[path = "src/confine/numbers.rs"]
mod numbers;

use avfs_seccomp::{
    Answer, Nesting, REFUSALS, Refusal, STRICT_CALLS, STRICT_REFUSAL, UNIX_REFUSAL, WATCHED_CALLS, When,
};

const SOURCES: [&str; 2] = ["build.rs", "src/confine/numbers.rs"];

/// Offset of the system call number in `seccomp_data`.
const NUMBER: u32 = 0;
/// The number of instructions that seccompiler emits before the number is loaded: the check of the architecture.
const ARCH_CHECK: usize = 3;

const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
/// Allowed, with data in the low bits that the kernel ignores.
const WATCH: u32 = ALLOW | 1;
const ERRNO: u32 = 0x0005_0000;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The options of a program. The runner computes a program's index from them in the same order.
#[derive(Clone, Copy)]
struct Choice {
    strict: bool,
    unix_refused: bool,
    nesting: bool,
}

/// The verdict on a system call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allow,
    /// Allowed; in the program with a listener, the supervisor is notified.
    Watch,
    Refuse(Answer),
    /// Decided by the block with this index, which checks the arguments.
    Look(usize),
}

fn main() -> Result<()> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    check_names()?;
    let mut text = String::new();
    for (name, arch, arch_word) in
        [("X86_64", TargetArch::x86_64, "x86_64"), ("AARCH64", TargetArch::aarch64, "aarch64")]
    {
        writeln!(text, "#[cfg(any(test, target_arch = \"{arch_word}\"))]")?;
        writeln!(text, "pub static {name}: [&[libc::sock_filter]; 8] = [")?;
        for number in 0..8 {
            let choice =
                Choice { strict: number & 4 != 0, unix_refused: number & 2 != 0, nesting: number & 1 != 0 };
            text.push_str("    &[\n");
            for sock_filter { code, jt, jf, k } in program(arch, choice)? {
                writeln!(text, "        op({code:#x}, {jt}, {jf}, {k:#x}),")?;
            }
            text.push_str("    ],\n");
        }
        text.push_str("];\n");
    }
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&out).join("filters.rs"), text)?;
    Ok(())
}

fn calls(arch: TargetArch) -> Result<BTreeMap<&'static str, u32>> {
    let name = match arch {
        TargetArch::x86_64 => numbers::name_on_x86_64,
        TargetArch::aarch64 => numbers::name_on_aarch64,
        TargetArch::riscv64 => return Err("no profile for riscv64".into()),
    };
    Ok((0..=numbers::LAST).filter_map(|number| Some((name(number)?, number))).collect())
}

/// A name unknown on every architecture is a typo, and would leave the call allowed.
fn check_names() -> Result<()> {
    let (x86_64, aarch64) = (calls(TargetArch::x86_64)?, calls(TargetArch::aarch64)?);
    let mut named =
        REFUSALS.iter().flat_map(|refusal| refusal.calls).chain(STRICT_CALLS).chain(WATCHED_CALLS);
    match named.find(|name| !x86_64.contains_key(*name) && !aarch64.contains_key(*name)) {
        Some(name) => {
            Err(format!("{name} is in the table of refusals, but it is not a known system call").into())
        }
        None => Ok(()),
    }
}

fn program(arch: TargetArch, choice: Choice) -> Result<Vec<sock_filter>> {
    let known = calls(arch)?;
    let last = known.values().copied().max().ok_or("no calls")?;
    // Unassigned numbers, and those added after this list was made, get ENOSYS as on a kernel without them.
    let mut verdicts = vec![Fate::Refuse(Answer::NoSuchCall); usize::try_from(last)? + 1];
    for (name, number) in &known {
        let open = !choice.strict || STRICT_CALLS.contains(name);
        verdicts[usize::try_from(*number)?] = if WATCHED_CALLS.contains(name) {
            Fate::Watch
        } else if open {
            Fate::Allow
        } else {
            Fate::Refuse(STRICT_REFUSAL.answer)
        };
    }
    let mut blocks = Vec::new();
    for refusal in REFUSALS {
        for name in refusal.calls {
            let Some(number) = known.get(name) else { continue };
            let unix = choice.unix_refused && UNIX_REFUSAL.calls.contains(name);
            let refusal = if unix { &UNIX_REFUSAL } else { refusal };
            verdicts[usize::try_from(*number)?] = if choice.nesting && refusal.nesting == Nesting::Needed {
                Fate::Allow
            } else if refusal.when == When::Always {
                Fate::Refuse(refusal.answer)
            } else {
                blocks.push(block(arch, *number, refusal)?);
                Fate::Look(blocks.len() - 1)
            };
        }
    }
    assemble(arch, &verdicts, &blocks)
}

fn assemble(arch: TargetArch, verdicts: &[Fate], blocks: &[BpfProgram]) -> Result<Vec<sock_filter>> {
    let mut code = arch_check(arch)?;
    code.push(op(LOAD, 0, 0, NUMBER));
    // x32 calls have a high bit set, so this refuses them too.
    code.push(op(JUMP_IF_AT_LEAST, 0, 1, u32::try_from(verdicts.len())?));
    code.push(op(RETURN, 0, 0, ERRNO | u32::from(Answer::NoSuchCall.number())));
    let mut ranges: Vec<(u32, Fate)> = Vec::new();
    for (number, verdict) in (0..).zip(verdicts) {
        if ranges.last().is_none_or(|(_, before)| before != verdict) {
            ranges.push((number, *verdict));
        }
    }
    let mut looks = Vec::new();
    search(&ranges, &mut code, &mut looks)?;
    let mut starts = Vec::with_capacity(blocks.len());
    for block in blocks {
        starts.push(code.len());
        code.extend_from_slice(block);
    }
    for (at, block) in looks {
        code[at].k = u32::try_from(starts[block] - at - 1)?;
    }
    Ok(code)
}

/// Emits a binary search over the ranges by their first numbers.
fn search(
    ranges: &[(u32, Fate)],
    code: &mut Vec<sock_filter>,
    looks: &mut Vec<(usize, usize)>,
) -> Result<()> {
    if let [(_, verdict)] = ranges {
        code.push(match verdict {
            Fate::Allow => op(RETURN, 0, 0, ALLOW),
            Fate::Watch => op(RETURN, 0, 0, WATCH),
            Fate::Refuse(answer) => op(RETURN, 0, 0, ERRNO | u32::from(answer.number())),
            Fate::Look(block) => {
                looks.push((code.len(), *block));
                op(JUMP, 0, 0, 0)
            }
        });
        return Ok(());
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let at = code.len();
    code.push(op(JUMP_IF_AT_LEAST, 0, 0, upper[0].0));
    search(lower, code, looks)?;
    code[at].jt = u8::try_from(code.len() - at - 1).map_err(|_| "a jump of the search is too long")?;
    search(upper, code, looks)
}

/// The part of a program that checks the arguments of one call, starting with the load of its number.
fn block(arch: TargetArch, number: u32, refusal: &Refusal) -> Result<BpfProgram> {
    let condition = |argument: u8, operator: SeccompCmpOp, value: u32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value))
    };
    let rules: Vec<Vec<SeccompCondition>> = match refusal.when {
        When::Always => return Err("a call that is always refused does not need a block".into()),
        When::AnyBit { argument, bits } => bits
            .iter()
            .map(|bit| Ok(vec![condition(argument, SeccompCmpOp::MaskedEq(u64::from(*bit)), *bit)?]))
            .collect::<Result<_>>()?,
        When::OneOf { argument, values } => values
            .iter()
            .map(|value| Ok(vec![condition(argument, SeccompCmpOp::Eq, *value)?]))
            .collect::<Result<_>>()?,
        When::NoneOf { argument, values } => vec![
            values
                .iter()
                .map(|value| Ok(condition(argument, SeccompCmpOp::Ne, *value)?))
                .collect::<Result<_>>()?,
        ],
    };
    let rules = rules.into_iter().map(SeccompRule::new).collect::<std::result::Result<Vec<_>, _>>()?;
    let refused = SeccompAction::Errno(u32::from(refusal.answer.number()));
    let filter =
        SeccompFilter::new([(i64::from(number), rules)].into(), SeccompAction::Allow, refused, arch)?;
    Ok(BpfProgram::try_from(filter)?.split_off(ARCH_CHECK))
}

/// Kills callers that use another architecture's numbers, since the same numbers mean other calls.
fn arch_check(arch: TargetArch) -> Result<Vec<sock_filter>> {
    let empty = SeccompFilter::new(BTreeMap::new(), SeccompAction::Allow, SeccompAction::KillProcess, arch)?;
    let mut code = BpfProgram::try_from(empty)?;
    code.truncate(ARCH_CHECK);
    Ok(code)
}

fn op(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}
