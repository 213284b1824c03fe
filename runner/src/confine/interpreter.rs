//! A BPF interpreter for tests, with the few instructions that seccomp filters use.

use crate::sys::Instruction;

/// The input of a filter.
#[derive(Clone, Copy)]
pub struct Call {
    pub number: u32,
    pub arch: u32,
    pub arguments: [u64; 6],
}

impl Call {
    /// A word of `seccomp_data`: number, architecture, instruction pointer, arguments.
    fn word(&self, offset: u32) -> u32 {
        let half = |value: u64, upper: bool| {
            let bytes = if upper { value >> 32 } else { value & 0xffff_ffff };
            u32::try_from(bytes).unwrap()
        };
        match offset {
            0 => self.number,
            4 => self.arch,
            8 | 12 => 0,
            16..64 => {
                let at = usize::try_from((offset - 16) / 8).unwrap();
                half(self.arguments[at], offset % 8 == 4)
            }
            _ => panic!("a filter reads byte {offset}"),
        }
    }
}

/// The action that a program returns.
pub fn run(program: &[Instruction], call: &Call) -> u32 {
    let (mut at, mut value) = (0, 0);
    // Jumps only lead forward, so this terminates.
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let mut jump = |condition: bool| at += usize::from(if condition { jt } else { jf });
        match code {
            0x20 => value = call.word(k),
            0x54 => value &= k,
            0x05 => at += usize::try_from(k).unwrap(),
            0x15 => jump(value == k),
            0x25 => jump(value > k),
            0x35 => jump(value >= k),
            0x45 => jump(value & k != 0),
            0x06 => return k,
            _ => panic!("{code:#x} is not an instruction of a seccomp filter"),
        }
    }
}
