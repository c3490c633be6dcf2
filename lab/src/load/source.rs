//! Where a connection's commands come from, a piece at a time, already encoded.

/// Digits of a name.
const DIGITS: usize = 20;

/// Commands to send.
pub struct Source(Kind);

enum Kind {
    /// The same pieces over and over.
    Cycle {
        pieces: Vec<Vec<u8>>,
        commands: usize,
        next: usize,
    },
    /// One command with another name each time.
    Names {
        /// So many copies of the command, into which names are written.
        copies: Vec<u8>,
        /// Length of one, and where its name stands.
        length: usize,
        name_at: usize,
        numbers: Numbers,
    },
}

impl Source {
    /// No commands.
    pub fn nothing() -> Source {
        Source::names(1, Numbers::range(0, 0), |name, out| {
            out.extend_from_slice(name)
        })
    }

    /// `commands` commands over and over, `piece` at a time; as many again as
    /// are needed for whole pieces.
    pub fn cycle(piece: usize, commands: usize, encode: impl Fn(usize, &mut Vec<u8>)) -> Source {
        let mut rounds = 1;
        while !(rounds * commands).is_multiple_of(piece) {
            rounds += 1;
        }
        let all: Vec<usize> = (0..rounds * commands).collect();
        let encoded = |numbers: &[usize]| {
            let mut bytes = Vec::new();
            numbers
                .iter()
                .for_each(|at| encode(at % commands, &mut bytes));
            bytes
        };
        Source(Kind::Cycle {
            pieces: all.chunks(piece).map(encoded).collect(),
            commands: piece,
            next: 0,
        })
    }

    /// The command that `encode` makes of a name, for each number in turn.
    pub fn names(
        piece: usize,
        numbers: Numbers,
        encode: impl Fn(&[u8; DIGITS], &mut Vec<u8>),
    ) -> Source {
        const PLACE: [u8; DIGITS] = [b'#'; DIGITS];
        let mut command = Vec::new();
        encode(&PLACE, &mut command);
        let place = command.windows(DIGITS).position(|bytes| bytes == PLACE);
        Source(Kind::Names {
            copies: command.repeat(piece),
            length: command.len(),
            name_at: place.unwrap_or(0),
            numbers,
        })
    }

    /// The next piece, and how many commands it holds; 0 at the end.
    pub fn next(&mut self) -> (&[u8], usize) {
        match &mut self.0 {
            Kind::Cycle {
                pieces,
                commands,
                next,
            } => {
                let at = *next;
                *next = if at + 1 == pieces.len() { 0 } else { at + 1 };
                (&pieces[at], *commands)
            }
            Kind::Names {
                copies,
                length,
                name_at,
                numbers,
            } => {
                let mut commands = 0;
                for command in copies.chunks_exact_mut(*length) {
                    let Some(number) = numbers.next() else { break };
                    command[*name_at..*name_at + DIGITS].copy_from_slice(&name(number));
                    commands += 1;
                }
                (&copies[..commands * *length], commands)
            }
        }
    }
}

/// A name that looks random: the decimal digits of a number that SplitMix64's
/// finaliser (Steele, Lea, Flood 2014) makes of another; no two are alike.
pub fn name(number: u64) -> [u8; DIGITS] {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (z % 10) as u8;
        z /= 10;
    }
    digits
}

/// Numbers in some order.
pub struct Numbers {
    from: u64,
    count: u64,
    stride: u64,
    at: u64,
}

impl Numbers {
    /// `count` numbers from `from` on.
    pub fn range(from: u64, count: u64) -> Numbers {
        Numbers {
            from,
            count,
            stride: 1,
            at: 0,
        }
    }

    /// From `from` on, without end.
    pub fn endless(from: u64) -> Numbers {
        Numbers::range(from, u64::MAX)
    }

    /// The same numbers as `range`, far apart from one to the next.
    pub fn shuffled(from: u64, count: u64) -> Numbers {
        // A stride without a common divisor with the count meets each once;
        // the golden ratio spreads them.
        let divisor = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let mut stride = ((count as f64 * 0.618_034) as u64).max(1);
        while divisor(stride, count) > 1 {
            stride += 1;
        }
        Numbers {
            from,
            count,
            stride,
            at: 0,
        }
    }
}

impl Iterator for Numbers {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = self.at;
        if at == self.count {
            return None;
        }
        self.at += 1;
        let offset = match self.stride {
            1 => at,
            stride => (u128::from(at) * u128::from(stride) % u128::from(self.count)) as u64,
        };
        Some(self.from + offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn shuffled_numbers_are_all_of_the_range_in_another_order() {
        for count in [1, 2, 10, 1000, 4096] {
            let all: Vec<u64> = Numbers::shuffled(7, count).collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, Numbers::range(7, count).collect::<Vec<_>>());
            assert!(count < 10 || all != sorted);
        }
    }

    #[test]
    fn names_differ_and_have_one_length() {
        let names: BTreeSet<_> = (0..10_000).map(name).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().flatten().all(u8::is_ascii_digit));
    }

    #[test]
    fn a_cycle_comes_in_whole_pieces() {
        let mut source = Source::cycle(3, 2, |command, out| {
            out.push(b"ab"[command]);
        });
        let mut pieces = || String::from_utf8_lossy(source.next().0).into_owned();
        assert_eq!([pieces(), pieces(), pieces()], ["aba", "bab", "aba"]);
    }

    #[test]
    fn names_are_written_into_the_command_and_the_last_piece_is_shorter() {
        let command = |name: &[u8; DIGITS], out: &mut Vec<u8>| {
            out.extend_from_slice(&[b"<", &name[..], b">"].concat());
        };
        let mut source = Source::names(2, Numbers::range(5, 3), command);
        let expected = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers
                .iter()
                .for_each(|number| command(&name(*number), &mut bytes));
            bytes
        };
        assert_eq!(source.next(), (&expected(&[5, 6])[..], 2));
        assert_eq!(source.next(), (&expected(&[7])[..], 1));
        assert_eq!(source.next(), (&[][..], 0));
        assert_eq!(Source::nothing().next().1, 0);
    }
}
