//! The search for the first bad version of a history: which to probe next, what a verdict means, and the answer.
//!
//! Pure: knows positions in a history, oldest first, and nothing of versions or processes. The first position is said to be
//! good and the last to be bad; both are probed like any other before they are believed. Between a good position and a
//! bad one there is always a first bad one, also where the history goes back and forth.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeVerdict {
    Good,
    Bad,
    /// It cannot be told.
    Skipped,
}

/// One of the two ends of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Good,
    Bad,
}

/// What a search comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The first bad position is one of these: more than one only where all but the last were skipped.
    Culprit(RangeInclusive<usize>),
    /// An end is not what it was said to be.
    Contrary(End),
    /// An end cannot be told.
    Untold(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// Somebody is at it.
    Pending,
    Verdict(ProbeVerdict),
}

/// A search. Equal contents share a verdict.
#[derive(Clone, Debug)]
pub struct Search {
    /// The content of each position.
    contents: Vec<usize>,
    /// What is known of each content.
    known: Vec<Known>,
    /// The newest position that is good before the oldest that is bad, and that one.
    good: usize,
    bad: usize,
}

impl Search {
    /// A search in a history of contents, oldest first; nothing if there are not two positions to search between.
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

    /// Positions to probe now, at most `room` of them: first the ends, then some that cut what is left into equal
    /// parts. None while a probe that matters is under way, and none once there is a finding.
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

    /// Of positions with the same content one is enough.
    fn cut(&self, room: usize) -> Vec<usize> {
        let between = self.good + 1..self.bad;
        if between.clone().any(|position| self.known(position) == Known::Pending) {
            return Vec::new();
        }
        let open: Vec<usize> = between.filter(|position| self.known(*position) == Known::Nothing).collect();
        let parts = room.min(open.len()) + 1;
        let mut chosen: Vec<usize> = Vec::new();
        for part in 1..parts {
            // Of the ways to round this one leaves the same number between any two, give or take one.
            let at = part * (open.len() + 1) / parts - 1;
            if let Some(position) = open.get(at)
                && chosen.iter().all(|other| self.contents.get(*other) != self.contents.get(*position))
            {
                chosen.push(*position);
            }
        }
        chosen
    }

    /// Takes the verdict on a position, also one that was not asked for.
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

    /// What it has come to; nothing as long as there is something to probe.
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
                Known::Verdict(_) => return Some(Finding::Untold(end)),
                Known::Nothing | Known::Pending => {}
            }
        }
        let told = (self.good + 1..self.bad).all(|position| self.is(position, ProbeVerdict::Skipped));
        (self.ends_hold() && told).then(|| Finding::Culprit(self.good + 1..=self.bad))
    }

    /// How many positions may still be the first bad one.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bad - self.good
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches to the end, all probes of a round at once; the finding and the number of rounds after the ends.
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
            assert!(!inner || search.next(jobs).is_empty(), "the same is asked for twice");
            rounds += usize::from(inner);
            for position in chosen {
                search.take(position, verdicts[position]);
            }
        }
    }

    /// The first bad one that follows a good one, with what was skipped between them.
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

        /// Good up to some point, bad from there on, anything in between skipped.
        #[test]
        fn finds_what_a_scan_finds_in_few_rounds(
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

        /// Anything between the ends, and contents that come again: still a bad one after a good one with nothing but
        /// skipped ones between them.
        #[test]
        fn any_history_has_a_turn(
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
                Finding::Untold(End::Good) => prop_assert_eq!(verdicts[0], ProbeVerdict::Skipped),
                Finding::Untold(End::Bad) => prop_assert_eq!(*verdicts.last().unwrap(), ProbeVerdict::Skipped),
            }
        }

        /// Verdicts that come one by one, in any order, while others are awaited: nothing is asked for twice, no more at
        /// once than there is room for, and the finding is the same.
        #[test]
        fn verdicts_may_come_in_any_order(
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
                    prop_assert!(asked.insert(position), "{} is asked for again", position);
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
    fn a_history_of_one_has_nothing_to_search() {
        assert!(Search::new([1]).is_none());
        assert!(Search::new(Vec::<u32>::new()).is_none());
    }

    #[test]
    fn ends_of_the_same_content_are_probed_once_and_refute_each_other() {
        let mut search = Search::new([7, 8, 7]).unwrap();
        assert_eq!(search.next(5), [0]);
        search.take(0, ProbeVerdict::Good);
        assert_eq!(search.finding(), Some(Finding::Contrary(End::Bad)));
    }

    #[test]
    fn one_job_is_a_binary_search() {
        let verdicts: Vec<ProbeVerdict> = (0..1025)
            .map(|position| if position < 700 { ProbeVerdict::Good } else { ProbeVerdict::Bad })
            .collect();
        let history: Vec<u32> = (0..1025).collect();
        assert_eq!(search(&history, &verdicts, 1), (Finding::Culprit(700..=700), 10));
        assert_eq!(search(&history, &verdicts, 3), (Finding::Culprit(700..=700), 5));
    }

    #[test]
    fn what_was_given_up_is_skipped_without_a_probe() {
        let mut search = Search::new([1, 2, 3]).unwrap();
        search.take(1, ProbeVerdict::Skipped);
        assert_eq!(search.next(4), [0, 2]);
        search.take(2, ProbeVerdict::Bad);
        search.take(0, ProbeVerdict::Good);
        assert_eq!(search.finding(), Some(Finding::Culprit(1..=2)));
    }
}
