//! Finds the lines that differ between two texts: Myers' algorithm in linear space, with a bounded number of steps.
//!
//! When the steps run out, everything not compared yet counts as replaced: the result still transforms one text
//! into the other, and is the same on every machine.

use std::collections::HashMap;
use std::ops::Range;

/// Maximum steps to compare one file: enough for thousands of edits among lines that both texts have.
const FILE_STEPS_MAX: u64 = 1 << 24;
/// Maximum steps for all files that are shown together.
const TOTAL_STEPS_MAX: u64 = 1 << 28;

/// Steps left for the files of one diff.
#[derive(Clone, Copy, Debug)]
pub struct DiffSteps(u64);

impl Default for DiffSteps {
    fn default() -> Self {
        Self(TOTAL_STEPS_MAX)
    }
}

impl DiffSteps {
    /// Subtracts steps; false if there were not enough.
    fn take(&mut self, steps: usize) -> bool {
        let enough = self.0.checked_sub(steps as u64);
        self.0 = enough.unwrap_or(0);
        enough.is_some()
    }
}

/// A range of old lines and the new lines that replace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub old: Range<usize>,
    pub new: Range<usize>,
}

/// The differences in order. At least one equal line separates two of them.
#[must_use]
pub fn compare(old: &[&[u8]], new: &[&[u8]], total: &mut DiffSteps) -> Vec<Replaced> {
    let mut steps = DiffSteps(total.0.min(FILE_STEPS_MAX));
    let before = steps.0;
    let replaced = compare_within(old, new, &mut steps);
    total.0 -= before - steps.0;
    replaced
}

fn compare_within(old: &[&[u8]], new: &[&[u8]], steps: &mut DiffSteps) -> Vec<Replaced> {
    let [old, new] = numbered(old, new);
    let (mut kept_old, mut kept_new) = (vec![false; old.len()], vec![false; new.len()]);
    // Lines that do not occur in the other text need no search.
    let (places_old, places_new) = (shared(&old, &new), shared(&new, &old));
    let (a, b) = (pick(&old, &places_old), pick(&new, &places_new));
    let mut boxes = vec![(0..a.len(), 0..b.len())];
    while let Some((mut x, mut y)) = boxes.pop() {
        let mut keep = |at: (usize, usize)| {
            kept_old[places_old[at.0]] = true;
            kept_new[places_new[at.1]] = true;
        };
        while !x.is_empty() && !y.is_empty() && a[x.start] == b[y.start] {
            keep((x.start, y.start));
            (x.start, y.start) = (x.start + 1, y.start + 1);
        }
        while !x.is_empty() && !y.is_empty() && a[x.end - 1] == b[y.end - 1] {
            (x.end, y.end) = (x.end - 1, y.end - 1);
            keep((x.end, y.end));
        }
        if x.is_empty() || y.is_empty() {
            continue;
        }
        if let Some(middle) = middle(&a[x.clone()], &b[y.clone()], steps) {
            let (middle_x, middle_y) = (x.start + middle.0, y.start + middle.1);
            boxes.push((middle_x..x.end, middle_y..y.end));
            boxes.push((x.start..middle_x, y.start..middle_y));
        }
    }
    slid(&old, &new, &ranges(&kept_old, &kept_new))
}

/// Assigns equal lines the same number.
fn numbered(old: &[&[u8]], new: &[&[u8]]) -> [Vec<usize>; 2] {
    let mut numbers = HashMap::new();
    [old, new].map(|lines| {
        lines
            .iter()
            .map(|line| {
                let next = numbers.len();
                *numbers.entry(*line).or_insert(next)
            })
            .collect()
    })
}

/// The indexes of lines that also occur in the other text.
fn shared(lines: &[usize], others: &[usize]) -> Vec<usize> {
    let numbers = lines.iter().chain(others).max().map_or(0, |most| most + 1);
    let mut there = vec![false; numbers];
    others.iter().for_each(|line| there[*line] = true);
    (0..lines.len()).filter(|at| there[lines[*at]]).collect()
}

fn pick(lines: &[usize], places: &[usize]) -> Vec<usize> {
    places.iter().map(|at| lines[*at]).collect()
}

/// The furthest-reaching point on each diagonal, from one corner of the edit graph towards the other.
struct Front {
    /// By diagonal, starting at -`zero`: the number of lines of `a` consumed at the point.
    reach: Vec<Option<usize>>,
    zero: usize,
}

impl Front {
    fn new(edits_max: usize) -> Self {
        Self { reach: vec![None; 2 * edits_max + 3], zero: edits_max + 1 }
    }

    /// The index of a diagonal: `up` above the lowest one reachable with `edits` edits.
    fn place(&self, edits: usize, up: usize) -> usize {
        self.zero + up - edits
    }

    /// Makes one more edit, then follows equal lines. Returns the point and the number of equal lines.
    fn advance(
        &mut self,
        place: usize,
        edits: usize,
        (n, m): (usize, usize),
        same: impl Fn(usize, usize) -> bool,
    ) -> Option<(usize, usize, usize)> {
        let right = self.reach[place - 1].filter(|x| *x < n).map(|x| x + 1);
        // One more line of `b`: the point on the diagonal above has consumed one line of `b` less.
        let down = self.reach[place + 1].filter(|x| x + self.zero < place + m + 1);
        let x = if edits == 0 { Some(0) } else { right.max(down) };
        self.reach[place] = x;
        let (mut x, begun) = (x?, x?);
        let mut y = x + self.zero - place;
        while x < n && y < m && same(x, y) {
            (x, y) = (x + 1, y + 1);
        }
        self.reach[place] = Some(x);
        Some((x, y, x - begun))
    }
}

/// A point in the middle of a shortest path from the start of both texts to their ends. The texts must differ
/// in their first and last lines. `None` if there are not enough steps to find it.
fn middle(a: &[usize], b: &[usize], steps: &mut DiffSteps) -> Option<(usize, usize)> {
    let (n, m) = (a.len(), b.len());
    // Each additional edit costs one step per diagonal, so more edits than this cannot be afforded.
    let payable = usize::try_from(steps.0.isqrt()).unwrap_or(usize::MAX) + 1;
    let edits_max = (n + m).div_ceil(2).min(payable);
    let (mut forward, mut backward) = (Front::new(edits_max), Front::new(edits_max));
    let (is_odd, zero) = ((n + m) % 2 == 1, forward.zero);
    // The index of the same diagonal seen from the other corner: k from one is n - m - k from the other.
    let other = |place: usize| (2 * zero + n).checked_sub(place + m);
    let met = |front: &Front, place: usize, x: usize| {
        let there = other(place).and_then(|place| front.reach.get(place).copied().flatten());
        there.is_some_and(|there| x + there >= n)
    };
    for edits in 0..=edits_max {
        let mut taken = 0;
        for up in (0..=2 * edits).step_by(2) {
            let place = forward.place(edits, up);
            taken += 1;
            let moved = forward.advance(place, edits, (n, m), |x, y| a[x] == b[y]);
            let Some((x, y, same)) = moved else { continue };
            taken += same;
            if is_odd && met(&backward, place, x) {
                steps.take(taken);
                return Some((x, y));
            }
        }
        for up in (0..=2 * edits).step_by(2) {
            let place = backward.place(edits, up);
            taken += 1;
            let moved = backward.advance(place, edits, (n, m), |x, y| a[n - 1 - x] == b[m - 1 - y]);
            let Some((x, y, same)) = moved else { continue };
            taken += same;
            if !is_odd && met(&forward, place, x) {
                steps.take(taken);
                return Some((n - x, m - y));
            }
        }
        if !steps.take(taken) {
            return None;
        }
    }
    None
}

/// The ranges between lines that are kept.
fn ranges(kept_old: &[bool], kept_new: &[bool]) -> Vec<Replaced> {
    let mut found = Vec::new();
    let (mut x, mut y) = (0, 0);
    let gone = |kept: &[bool], from: usize| kept[from..].iter().take_while(|kept| !**kept).count();
    while x < kept_old.len() || y < kept_new.len() {
        let (old, new) = (x..x + gone(kept_old, x), y..y + gone(kept_new, y));
        (x, y) = (old.end + 1, new.end + 1);
        if !old.is_empty() || !new.is_empty() {
            found.push(Replaced { old, new });
        }
    }
    found
}

/// Moves pure insertions and deletions down as far as the text stays the same, as git does: so a new function
/// ends with its own last line, not with that of the function before it.
fn slid(old: &[usize], new: &[usize], replaced: &[Replaced]) -> Vec<Replaced> {
    let mut moved: Vec<Replaced> = Vec::with_capacity(replaced.len());
    for (at, one) in replaced.iter().enumerate() {
        let mut one = one.clone();
        // The previous range may have moved down to here.
        if let Some(last) =
            moved.pop_if(|last| last.old.end == one.old.start || last.new.end == one.new.start)
        {
            one = Replaced { old: last.old.start..one.old.end, new: last.new.start..one.new.end };
        }
        let end =
            replaced.get(at + 1).map_or((old.len(), new.len()), |next| (next.old.start, next.new.start));
        let slides = |range: &Range<usize>, lines: &[usize]| {
            range.end < lines.len() && lines[range.start] == lines[range.end]
        };
        let by_one = |range: &Range<usize>| range.start + 1..range.end + 1;
        while one.old.end < end.0 && one.new.end < end.1 {
            let goes_on = match (one.old.is_empty(), one.new.is_empty()) {
                (true, false) => slides(&one.new, new),
                (false, true) => slides(&one.old, old),
                (true, true) | (false, false) => false,
            };
            if !goes_on {
                break;
            }
            one = Replaced { old: by_one(&one.old), new: by_one(&one.new) };
        }
        moved.push(one);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compared(old: &[&[u8]], new: &[&[u8]], steps: u64) -> Vec<Replaced> {
        let replaced = compare(old, new, &mut DiffSteps(steps));
        // The remaining lines are equal on both sides.
        let (mut x, mut y) = (0, 0);
        for one in replaced.iter().chain([&Replaced { old: old.len()..old.len(), new: new.len()..new.len() }])
        {
            assert!(one.old.start >= x && one.new.start >= y, "{replaced:?}");
            assert_eq!(old[x..one.old.start], new[y..one.new.start], "{replaced:?}");
            (x, y) = (one.old.end, one.new.end);
        }
        replaced
    }

    fn edits(replaced: &[Replaced]) -> usize {
        replaced.iter().map(|one| one.old.len() + one.new.len()).sum()
    }

    /// The minimum number of added and deleted lines, found by a slow algorithm.
    fn fewest(old: &[&[u8]], new: &[&[u8]]) -> usize {
        let mut row: Vec<usize> = (0..=new.len()).collect();
        for (x, line) in old.iter().enumerate() {
            let mut before = row.clone();
            before[0] = x + 1;
            for (y, other) in new.iter().enumerate() {
                before[y + 1] = if line == other { row[y] } else { 1 + row[y + 1].min(before[y]) };
            }
            row = before;
        }
        row[new.len()]
    }

    fn text(lines: &[u8]) -> Vec<&[u8]> {
        lines.chunks(1).collect()
    }

    proptest! {
        #[test]
        fn no_shorter_difference_exists(
            old in proptest::collection::vec(0..4_u8, 0..40),
            new in proptest::collection::vec(0..5_u8, 0..40),
            steps in 0..400_u64,
        ) {
            let (old, new) = (text(&old), text(&new));
            let found = compared(&old, &new, TOTAL_STEPS_MAX);
            prop_assert_eq!(edits(&found), fewest(&old, &new));
            // With fewer steps the difference is longer, but still transforms one text into the other.
            prop_assert!(edits(&compared(&old, &new, steps)) >= edits(&found));
        }
    }

    #[test]
    fn added_lines_slide_down() {
        let found = compared(&text(b"{a}{b}"), &text(b"{a}{c}{b}"), TOTAL_STEPS_MAX);
        assert_eq!(found, [Replaced { old: 4..4, new: 4..7 }]);
    }

    /// Two kinds of lines in random order: finding the shortest difference of these takes hours.
    #[test]
    fn texts_that_are_expensive_to_compare_are_replaced_completely() {
        let kinds = |seed: u64| -> Vec<&[u8]> {
            let mut state = seed;
            let next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                if state.is_multiple_of(2) { b"0\n".as_slice() } else { b"1\n" }
            };
            std::iter::repeat_with(next).take(200_000).collect()
        };
        let (old, new) = (kinds(1), kinds(2));
        let mut steps = DiffSteps(1 << 20);
        let found = compare(&old, &new, &mut steps);
        assert_eq!(steps.0, 0);
        assert_eq!(found.len(), 1);
        assert!(edits(&found) > 390_000, "{found:?}");
        // Two distant changes in the same text are cheap.
        let mut edited = old.clone();
        edited[100] = b"x\n";
        edited[199_000] = b"y\n";
        let mut steps = DiffSteps(1 << 20);
        assert_eq!(edits(&compare(&old, &edited, &mut steps)), 4);
        assert!(steps.0 > 0);
    }
}
