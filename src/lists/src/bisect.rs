//! The search for the first bad version of a history: which position to probe next, and the result.
//!
//! Pure: works on positions in a history, oldest first, and does not know about versions or processes. The
//! first position is assumed to be good and the last to be bad; both are probed before the assumption is used.
//! Between a good position and a bad one there is always a first bad one, even if the history alternates.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    Good,
    Bad,
    /// The probe could not decide.
    Skipped,
}

/// One of the two ends of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Good,
    Bad,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The first bad position is in this range. It has more than one position only if all but the last were skipped.
    Culprit(RangeInclusive<usize>),
    /// The verdict on this end contradicts the assumption.
    Contrary(End),
    /// The probe of this end could not decide.
    Undecided(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// A probe is in progress.
    Pending,
    Verdict(ProbeVerdict),
}

/// A search. Positions with equal content share a verdict.
#[derive(Clone, Debug)]
pub struct Search {
    /// The content of each position.
    contents: Vec<usize>,
    /// The state of each content.
    known: Vec<Known>,
    /// The oldest known bad position, and the newest good position before it.
    good: usize,
    bad: usize,
}

impl Search {
    /// A search in a history of contents, oldest first. `None` if there are fewer than two positions.
    #[must_use]
    pub fn new<K: Eq + Hash>(history: impl IntoIterator<Item = K>) -> Option<Self> {
        let mut numbers = HashMap::new();
        let contents: Vec<usize> = history
            .into_iter()
            .map(|content| {
                let next = numbers.len();
                *numbers.entry(content).or_insert(next)
            })
            .collect();
        let bad = contents.len().checked_sub(1).filter(|last| *last > 0)?;
        Some(Self { known: vec![Known::Nothing; numbers.len()], contents, good: 0, bad })
    }

    fn known(&self, position: usize) -> Known {
        let content = self.contents.get(position);
        content.and_then(|content| self.known.get(*content)).copied().unwrap_or(Known::Nothing)
    }

    fn learn(&mut self, position: usize, known: Known) {
        if let Some(place) = self.contents.get(position).and_then(|content| self.known.get_mut(*content)) {
            *place = known;
        }
    }

    fn is(&self, position: usize, verdict: ProbeVerdict) -> bool {
        self.known(position) == Known::Verdict(verdict)
    }

    fn ends_hold(&self) -> bool {
        self.is(0, ProbeVerdict::Good) && self.is(self.contents.len() - 1, ProbeVerdict::Bad)
    }

    /// Positions to probe now, at most `room`: first the ends, then positions that divide the remaining range
    /// into equal parts. Empty while a probe whose verdict matters is in progress, and once the search has a
    /// result.
    pub fn next(&mut self, room: usize) -> Vec<usize> {
        if self.finding().is_some() {
            return Vec::new();
        }
        let chosen = match self.ends_hold() {
            false => {
                let mut ends = vec![0, self.bad];
                ends.retain(|end| self.known(*end) == Known::Nothing);
                ends.dedup_by_key(|end| self.contents.get(*end));
                ends.truncate(room);
                ends
            }
            true => self.cut(room),
        };
        for position in &chosen {
            self.learn(*position, Known::Pending);
        }
        chosen
    }

    /// Probes only one of several positions with the same content.
    fn cut(&self, room: usize) -> Vec<usize> {
        let between = self.good + 1..self.bad;
        if between.clone().any(|position| self.known(position) == Known::Pending) {
            return Vec::new();
        }
        let open: Vec<usize> = between.filter(|position| self.known(*position) == Known::Nothing).collect();
        let parts = room.min(open.len()) + 1;
        let mut chosen: Vec<usize> = Vec::new();
        for part in 1..parts {
            // This rounding makes the parts equal in size, plus or minus one.
            let at = part * (open.len() + 1) / parts - 1;
            if let Some(position) = open.get(at)
                && chosen.iter().all(|other| self.contents.get(*other) != self.contents.get(*position))
            {
                chosen.push(*position);
            }
        }
        chosen
    }

    /// Records the verdict on a position, whether or not it was requested.
    pub fn take(&mut self, position: usize, verdict: ProbeVerdict) {
        self.learn(position, Known::Verdict(verdict));
        if !self.ends_hold() {
            return;
        }
        let mut within = self.good + 1..=self.bad;
        self.bad = within.find(|position| self.is(*position, ProbeVerdict::Bad)).unwrap_or(self.bad);
        let newest = (self.good..self.bad).rev().find(|position| self.is(*position, ProbeVerdict::Good));
        self.good = newest.unwrap_or(self.good);
    }

    /// Whether a verdict on a position can still change the finding.
    #[must_use]
    pub fn matters(&self, position: usize) -> bool {
        match self.ends_hold() {
            false => self.finding().is_none(),
            true => {
                let content = self.contents.get(position);
                (self.good + 1..self.bad).any(|other| self.contents.get(other) == content)
            }
        }
    }

    /// The result of the search. `None` while there are positions left to probe.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let last = self.contents.len() - 1;
        for (end, position, said, contrary) in [
            (End::Good, 0, ProbeVerdict::Good, ProbeVerdict::Bad),
            (End::Bad, last, ProbeVerdict::Bad, ProbeVerdict::Good),
        ] {
            match self.known(position) {
                Known::Verdict(found) if found == said => {}
                Known::Verdict(found) if found == contrary => return Some(Finding::Contrary(end)),
                Known::Verdict(_) => return Some(Finding::Undecided(end)),
                Known::Nothing | Known::Pending => {}
            }
        }
        let all_skipped = (self.good + 1..self.bad).all(|position| self.is(position, ProbeVerdict::Skipped));
        (self.ends_hold() && all_skipped).then(|| Finding::Culprit(self.good + 1..=self.bad))
    }

    /// Number of positions that may still be the first bad one.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bad - self.good
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches to the end, with all probes of a round at once. Returns the finding and the number of rounds
    /// after the ends.
    fn search(history: &[u32], verdicts: &[ProbeVerdict], jobs: usize) -> (Finding, usize) {
        let mut search = Search::new(history).unwrap();
        let mut rounds = 0;
        loop {
            if let Some(finding) = search.finding() {
                return (finding, rounds);
            }
            let inner = search.ends_hold();
            let chosen = search.next(jobs);
            assert!(!chosen.is_empty() && chosen.len() <= jobs, "{chosen:?} of {jobs}");
            assert!(!inner || search.next(jobs).is_empty(), "a position is requested twice");
            rounds += usize::from(inner);
            for position in chosen {
                search.take(position, verdicts[position]);
            }
        }
    }

    /// The first bad position after a good one, with the skipped positions between them.
    fn scan(verdicts: &[ProbeVerdict]) -> RangeInclusive<usize> {
        let bad = verdicts.iter().position(|verdict| *verdict == ProbeVerdict::Bad).unwrap();
        let good = verdicts[..bad].iter().rposition(|verdict| *verdict == ProbeVerdict::Good).unwrap();
        good + 1..=bad
    }

    fn rounds_max(count: usize, jobs: usize) -> usize {
        let mut rounds = 0;
        let mut reach = 1_usize;
        while reach < count {
            reach = reach.saturating_mul(jobs + 1);
            rounds += 1;
        }
        rounds
    }

    fn skips_of(verdicts: &[ProbeVerdict]) -> usize {
        verdicts.iter().filter(|verdict| **verdict == ProbeVerdict::Skipped).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Good up to some point and bad from there on, with any positions in between skipped.
        #[test]
        fn search_finds_the_same_as_a_scan_in_few_rounds(
            count in 2_usize..200,
            turn in any::<prop::sample::Index>(),
            skipped in prop::collection::vec(prop::bool::weighted(0.2), 200),
            jobs in 1_usize..9,
        ) {
            let turn = turn.index(count - 1) + 1;
            let verdicts: Vec<ProbeVerdict> = (0..count)
                .map(|position| match (skipped[position] && position != 0 && position != count - 1, position < turn) {
                    (true, _) => ProbeVerdict::Skipped,
                    (false, true) => ProbeVerdict::Good,
                    (false, false) => ProbeVerdict::Bad,
                })
                .collect();
            let history: Vec<u32> = (0..u32::try_from(count).unwrap()).collect();
            let (finding, rounds) = search(&history, &verdicts, jobs);
            prop_assert_eq!(finding, Finding::Culprit(scan(&verdicts)));
            prop_assert!(rounds <= rounds_max(count - 1, jobs) + skips_of(&verdicts), "{} rounds", rounds);
        }

        /// Any verdicts between the ends, and repeated contents: the result is still a bad position after a
        /// good one, with only skipped positions between them.
        #[test]
        fn any_history_has_a_first_bad_position(
            history in prop::collection::vec(0_u32..12, 2..60),
            found in prop::collection::vec(0_usize..3, 12),
            jobs in 1_usize..6,
        ) {
            const ALL: [ProbeVerdict; 3] = [ProbeVerdict::Good, ProbeVerdict::Bad, ProbeVerdict::Skipped];
            let verdicts: Vec<ProbeVerdict> = history.iter().map(|content| ALL[found[*content as usize]]).collect();
            let (finding, _) = search(&history, &verdicts, jobs);
            match finding {
                Finding::Culprit(range) => {
                    let (first, last) = range.into_inner();
                    prop_assert_eq!(verdicts[first - 1], ProbeVerdict::Good);
                    prop_assert_eq!(verdicts[last], ProbeVerdict::Bad);
                    prop_assert!(verdicts[first..last].iter().all(|verdict| *verdict == ProbeVerdict::Skipped));
                }
                Finding::Contrary(End::Good) => prop_assert_eq!(verdicts[0], ProbeVerdict::Bad),
                Finding::Contrary(End::Bad) => prop_assert_eq!(*verdicts.last().unwrap(), ProbeVerdict::Good),
                Finding::Undecided(End::Good) => prop_assert_eq!(verdicts[0], ProbeVerdict::Skipped),
                Finding::Undecided(End::Bad) => {
                    prop_assert_eq!(*verdicts.last().unwrap(), ProbeVerdict::Skipped);
                }
            }
        }

        /// Verdicts that arrive one at a time, in any order, while others are pending: no position is requested
        /// twice, no more than `room` are pending, and the result is the same.
        #[test]
        fn verdicts_may_arrive_in_any_order(
            count in 2_usize..80,
            turn in any::<prop::sample::Index>(),
            order in prop::collection::vec(any::<prop::sample::Index>(), 200),
            jobs in 1_usize..6,
        ) {
            let turn = turn.index(count - 1) + 1;
            let mut search = Search::new(0..count).unwrap();
            let (mut pending, mut asked) = (Vec::new(), std::collections::HashSet::new());
            let mut order = order.into_iter();
            while search.finding().is_none() {
                for position in search.next(jobs - pending.len()) {
                    prop_assert!(asked.insert(position), "{} is requested again", position);
                    pending.push(position);
                }
                prop_assert!(!pending.is_empty() && pending.len() <= jobs);
                prop_assert!(pending.iter().any(|position| search.matters(*position)));
                let position = pending.swap_remove(order.next().unwrap().index(pending.len()));
                search.take(position, if position < turn { ProbeVerdict::Good } else { ProbeVerdict::Bad });
            }
            prop_assert_eq!(search.finding(), Some(Finding::Culprit(turn..=turn)));
            prop_assert!(pending.iter().all(|position| !search.matters(*position)));
        }
    }

    #[test]
    fn history_with_one_position_cannot_be_searched() {
        assert!(Search::new([1]).is_none());
        assert!(Search::new(Vec::<u32>::new()).is_none());
    }

    #[test]
    fn ends_with_equal_content_are_probed_once_and_contradict_each_other() {
        let mut search = Search::new([7, 8, 7]).unwrap();
        assert_eq!(search.next(5), [0]);
        search.take(0, ProbeVerdict::Good);
        assert_eq!(search.finding(), Some(Finding::Contrary(End::Bad)));
    }

    #[test]
    fn search_with_one_job_is_a_binary_search() {
        let verdicts: Vec<ProbeVerdict> = (0..1025)
            .map(|position| if position < 700 { ProbeVerdict::Good } else { ProbeVerdict::Bad })
            .collect();
        let history: Vec<u32> = (0..1025).collect();
        assert_eq!(search(&history, &verdicts, 1), (Finding::Culprit(700..=700), 10));
        assert_eq!(search(&history, &verdicts, 3), (Finding::Culprit(700..=700), 5));
    }

    #[test]
    fn skipped_content_is_not_probed_again() {
        let mut search = Search::new([1, 2, 3]).unwrap();
        search.take(1, ProbeVerdict::Skipped);
        assert_eq!(search.next(4), [0, 2]);
        search.take(2, ProbeVerdict::Bad);
        search.take(0, ProbeVerdict::Good);
        assert_eq!(search.finding(), Some(Finding::Culprit(1..=2)));
    }
}
