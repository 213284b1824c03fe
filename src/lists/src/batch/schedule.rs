//! Which item of a list runs next, and what it starts from.
//!
//! Pure, and small: a few bytes per item, so that lists may be long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use avfs_types::words;

words!(
    /// How the items of a list depend on each other.
    Manner, "batch mode", {
        /// Each item starts from the result of the previous one.
        Chain = "chain",
        /// Each item runs on its own fork of the same base.
        FanOut = "fan-out",
        /// Each item starts from the results of the items it needs.
        Needs = "needs",
    }
);

/// How a failed item affects the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Start no more items.
    Stop,
    /// Skip only the items that need the failed one.
    KeepGoing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// An item it needs has not ended.
    Waiting,
    Ready,
    Running,
    Succeeded,
    Failed,
    /// An item it needs failed or was left out.
    LeftOut,
}

/// What an item starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begins {
    /// The base of the batch.
    Base,
    /// The results of these items.
    After(Vec<u32>),
}

/// The items of a batch and their states.
#[derive(Clone, Debug)]
pub struct Schedule {
    manner: Manner,
    on_failure: OnFailure,
    standing: Vec<Standing>,
    /// For each item, the number of needed items that have not succeeded.
    missing: Vec<u32>,
    /// The needs of each item, and the reverse: the items that need it.
    needs: Rows,
    needed_by: Rows,
    ready: BinaryHeap<Reverse<u32>>,
    running: usize,
    /// Number of items that have neither ended nor been left out.
    open: usize,
    stopped: bool,
}

/// Lists of numbers in one allocation.
#[derive(Clone, Debug, Default)]
struct Rows {
    begins: Vec<u32>,
    numbers: Vec<u32>,
}

impl Rows {
    fn of(rows: impl Iterator<Item = impl AsRef<[u32]>>) -> Self {
        let mut all = Self { begins: vec![0], numbers: Vec::new() };
        for row in rows {
            all.numbers.extend_from_slice(row.as_ref());
            all.begins.push(count(all.numbers.len()));
        }
        all
    }

    fn row(&self, number: u32) -> &[u32] {
        let at = number as usize;
        let bounds = self.begins.get(at).zip(self.begins.get(at + 1));
        bounds.and_then(|(from, to)| self.numbers.get(*from as usize..*to as usize)).unwrap_or_default()
    }

    /// The same relation, reversed.
    fn reversed(&self) -> Self {
        let items = self.begins.len() - 1;
        let mut begins = vec![0_u32; items + 1];
        for number in &self.numbers {
            begins[*number as usize + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut free = begins.clone();
        let mut numbers = vec![0; self.numbers.len()];
        for from in 0..count(items) {
            for to in self.row(from) {
                let place = &mut free[*to as usize];
                numbers[*place as usize] = from;
                *place += 1;
            }
        }
        Self { begins, numbers }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl Schedule {
    /// A schedule of `count` items. `needs` lists the needs of each item, as numbers below the count and
    /// without cycles; only `Manner::Needs` reads them.
    pub fn new<R: AsRef<[u32]>>(
        items: u32,
        manner: Manner,
        on_failure: OnFailure,
        needs: impl Fn(u32) -> R,
    ) -> Self {
        let needs = match manner {
            Manner::Needs => Rows::of((0..items).map(needs)),
            Manner::FanOut => Rows::of((0..items).map(|_| [0_u32; 0])),
            Manner::Chain => {
                Rows::of((0..items).map(|item| item.checked_sub(1).into_iter().collect::<Vec<_>>()))
            }
        };
        let missing: Vec<u32> = (0..items).map(|item| count(needs.row(item).len())).collect();
        let mut schedule = Self {
            manner,
            on_failure,
            standing: vec![Standing::Waiting; items as usize],
            needed_by: needs.reversed(),
            needs,
            missing,
            ready: BinaryHeap::new(),
            running: 0,
            open: items as usize,
            stopped: false,
        };
        for item in 0..items {
            schedule.ready_if_nothing_is_missing(item);
        }
        schedule
    }

    #[must_use]
    pub fn standing(&self, item: u32) -> Standing {
        self.standing.get(item as usize).copied().unwrap_or(Standing::LeftOut)
    }

    /// The next item to start: the lowest that is ready. `None` if all remaining items wait for others, or if
    /// no more items should start.
    pub fn begin(&mut self) -> Option<u32> {
        if self.stopped {
            return None;
        }
        while let Some(Reverse(item)) = self.ready.pop() {
            if self.standing(item) == Standing::Ready {
                self.set(item, Standing::Running);
                self.running += 1;
                return Some(item);
            }
        }
        None
    }

    /// What an item starts from. Not meaningful for a chain, where the head of the fork decides.
    #[must_use]
    pub fn begins(&self, item: u32) -> Begins {
        match self.needs.row(item) {
            [] => Begins::Base,
            needs => Begins::After(needs.to_vec()),
        }
    }

    /// True if another item starts from the result of this one.
    #[must_use]
    pub fn is_needed(&self, item: u32) -> bool {
        !self.needed_by.row(item).is_empty()
    }

    /// Makes a running item ready to be started again.
    pub fn again(&mut self, item: u32) {
        self.running -= 1;
        self.set(item, Standing::Ready);
        self.ready.push(Reverse(item));
    }

    /// Records that a running item has ended.
    pub fn ended(&mut self, item: u32, well: bool) {
        self.running -= 1;
        self.settle(item, well);
    }

    /// Records that an item succeeded before this schedule was created.
    pub fn is_done(&mut self, item: u32) {
        self.settle(item, true);
    }

    fn settle(&mut self, item: u32, well: bool) {
        self.set(item, if well { Standing::Succeeded } else { Standing::Failed });
        self.open -= 1;
        let goes_on = self.on_failure == OnFailure::KeepGoing && self.manner == Manner::Chain;
        if well || goes_on {
            for at in 0..self.needed_by.row(item).len() {
                let other = self.needed_by.row(item)[at];
                if let Some(missing) = self.missing.get_mut(other as usize) {
                    *missing = missing.saturating_sub(1);
                }
                self.ready_if_nothing_is_missing(other);
            }
        } else {
            self.stopped |= self.on_failure == OnFailure::Stop;
            self.leave_out_beyond(item);
        }
    }

    /// Leaves out every item that needs this one, directly or indirectly.
    fn leave_out_beyond(&mut self, item: u32) {
        let mut beyond = vec![item];
        while let Some(item) = beyond.pop() {
            for at in 0..self.needed_by.row(item).len() {
                let other = self.needed_by.row(item)[at];
                if self.standing(other) == Standing::Waiting {
                    self.set(other, Standing::LeftOut);
                    self.open -= 1;
                    beyond.push(other);
                }
            }
        }
    }

    fn ready_if_nothing_is_missing(&mut self, item: u32) {
        let missing = self.missing.get(item as usize).copied();
        if missing == Some(0) && self.standing(item) == Standing::Waiting {
            self.set(item, Standing::Ready);
            self.ready.push(Reverse(item));
        }
    }

    fn set(&mut self, item: u32, standing: Standing) {
        if let Some(place) = self.standing.get_mut(item as usize) {
            *place = standing;
        }
    }

    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    /// Starts no more items.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// True if no item is running and none will be started.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.running == 0 && (self.stopped || self.open == 0)
    }

    /// The failed or left-out item because of which this item was left out.
    #[must_use]
    pub fn in_vain(&self, item: u32) -> Option<u32> {
        let lacking = |need: &&u32| matches!(self.standing(**need), Standing::Failed | Standing::LeftOut);
        self.needs.row(item).iter().find(lacking).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(manner: Manner, on_failure: OnFailure, needs: &[Vec<u32>]) -> Schedule {
        Schedule::new(count(needs.len()), manner, on_failure, |item| needs[item as usize].clone())
    }

    #[test]
    fn chain_runs_one_item_at_a_time() {
        let mut chain = all(Manner::Chain, OnFailure::Stop, &[vec![], vec![], vec![]]);
        assert_eq!((chain.begin(), chain.begin()), (Some(0), None));
        chain.ended(0, true);
        assert_eq!((chain.begin(), chain.begin()), (Some(1), None));
        chain.ended(1, false);
        assert_eq!(chain.begin(), None);
        assert!(chain.is_over());
        assert_eq!((chain.standing(2), chain.in_vain(2)), (Standing::LeftOut, Some(1)));
    }

    #[test]
    fn chain_with_keep_going_continues_after_a_failure() {
        let mut chain = all(Manner::Chain, OnFailure::KeepGoing, &[vec![], vec![]]);
        chain.begin();
        chain.ended(0, false);
        assert_eq!(chain.begin(), Some(1));
        chain.ended(1, true);
        assert!(chain.is_over());
    }

    #[test]
    fn only_items_that_need_a_failed_item_are_left_out() {
        let needs = [vec![], vec![0], vec![], vec![1], vec![2, 0]];
        let mut batch = all(Manner::Needs, OnFailure::KeepGoing, &needs);
        assert_eq!((batch.begin(), batch.begin(), batch.begin()), (Some(0), Some(2), None));
        batch.ended(0, false);
        batch.ended(2, true);
        assert!(batch.is_over());
        let left: Vec<Standing> = [1, 3, 4].into_iter().map(|item| batch.standing(item)).collect();
        assert_eq!(left, [Standing::LeftOut; 3]);
        assert_eq!((batch.in_vain(3), batch.in_vain(4)), (Some(1), Some(0)));
    }

    #[test]
    fn done_items_are_not_started_and_failed_items_can_be_started_again() {
        let mut batch = all(Manner::FanOut, OnFailure::Stop, &[vec![], vec![], vec![]]);
        batch.is_done(1);
        assert_eq!((batch.begin(), batch.begin(), batch.begin()), (Some(0), Some(2), None));
        batch.again(0);
        assert_eq!(batch.begin(), Some(0));
    }

    /// Items that need only earlier items.
    fn graphs() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<bool>)> {
        (1_usize..30).prop_flat_map(|items| {
            let needs = (0..items).map(|item| {
                let below = count(item.max(1));
                prop::collection::btree_set(0..below, 0..if item == 0 { 1 } else { 4 })
                    .prop_map(|set| set.into_iter().collect::<Vec<u32>>())
            });
            (needs.collect::<Vec<_>>(), prop::collection::vec(prop::bool::weighted(0.8), items))
        })
    }

    proptest! {
        /// The same items run, each after the items it needs, for any number of jobs and any order of completion.
        #[test]
        fn any_order_runs_the_same_items(
            (needs, well) in graphs(),
            jobs in 1_usize..6,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut batch = all(Manner::Needs, OnFailure::KeepGoing, &needs);
            let (mut running, mut ended) = (Vec::new(), Vec::new());
            let mut picks = picks.into_iter();
            while !batch.is_over() {
                while running.len() < jobs && let Some(item) = batch.begin() {
                    prop_assert!(needs[item as usize].iter().all(|need| ended.contains(need)));
                    running.push(item);
                }
                let item = running.swap_remove(picks.next().unwrap().index(running.len()));
                ended.push(item);
                batch.ended(item, well[item as usize]);
            }
            let mut can = vec![true; needs.len()];
            for item in 0..needs.len() {
                can[item] = needs[item].iter().all(|need| can[*need as usize] && well[*need as usize]);
            }
            let expected: Vec<u32> = (0..count(needs.len())).filter(|item| can[*item as usize]).collect();
            ended.sort_unstable();
            prop_assert_eq!(ended, expected);
        }
    }
}
