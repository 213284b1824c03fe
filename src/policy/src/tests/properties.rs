//! Policies, readings and requests built from a few words, so that matches are likely.

use proptest::prelude::*;
use proptest::sample::select;

use avfs_request::choices::PolicyProfile;

use super::*;

const WORDS: [&str; 4] = ["a", "b", "-x", "/bin/a"];

fn pattern() -> impl Strategy<Value = ArgPattern> {
    (select(vec!["a", "b", "-*", "*"]), any::<bool>()).prop_map(|(text, some)| {
        let pattern = Pattern::of_text(text).unwrap();
        if some { ArgPattern::Some(pattern) } else { ArgPattern::None(pattern) }
    })
}

fn categories() -> impl Strategy<Value = Vec<Category>> {
    proptest::sample::subsequence(Category::ALL.to_vec(), 0..=3)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let prefix = proptest::collection::vec(select(vec!["a", "b", "-x"]), 0..3);
    let args = proptest::collection::vec(pattern(), 0..2);
    let kinds = proptest::sample::subsequence(Category::ALL.to_vec(), 0..=1);
    (prefix, args, kinds, select(Action::ALL)).prop_map(|(prefix, args, kinds, action)| {
        let mut rule = rule(&prefix, action);
        rule.when.args = args;
        rule.when.categories = kinds.into_iter().collect();
        rule
    })
}

fn networks() -> Vec<NetMode> {
    ["none", "allow=a.org", "allow=*.org", "allow=x.org", "host"].map(|net| net.parse().unwrap()).to_vec()
}

fn any_layer(tier: Tier) -> impl Strategy<Value = Layer> {
    let rules = proptest::collection::vec(any_rule(), 0..4);
    let profiles = proptest::sample::subsequence(PolicyProfile::ALL.to_vec(), 0..=1);
    let net = proptest::option::of(select(networks()));
    (rules, profiles, net).prop_map(move |(rules, profiles, net)| {
        let net = net.map(|value| Placed { value, place: place(1) });
        let caps = Caps { net, ..Caps::default() };
        Layer { profiles: profiles.into_iter().collect(), caps, ..layer(tier, rules) }
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    (select(networks()), proptest::option::of(Just("TOKEN"))).prop_map(|(net, secret)| Request {
        net,
        secrets: secret.into_iter().collect(),
        ..Request::plain()
    })
}

fn words() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::collection::vec(select(WORDS.to_vec()), 0..3)
}

proptest! {
    #[test]
    fn the_project_never_loosens(
        request in any_request(),
        system in any_layer(Tier::System),
        user in any_layer(Tier::User),
        vault in any_layer(Tier::Vault),
        texts in proptest::collection::vec((words(), categories()), 0..3),
        doubtful in any::<bool>(),
    ) {
        let commands = || texts.iter().map(|(words, kinds)| command(&words.join(" "), kinds));
        let reading = || if doubtful { in_doubt(commands()) } else { reading(commands()) };
        let without = policy([system, user]);
        let with = without.clone().with(vault);
        let (before, after) = (request.decided(&without, reading()), request.decided(&with, reading()));
        prop_assert!(after.action >= before.action);
        if doubtful || texts.is_empty() {
            prop_assert!(before.action >= Action::AllowWithCheckpoint && before.net.is_none());
            prop_assert!(before.categories.contains(Category::Mutating));
        }
        prop_assert_eq!(request.decided(&with, reading()), after);
    }

    /// For any value of an unknown word, the command was judged at least as strictly before the value was known.
    #[test]
    fn an_unknown_word_is_judged_at_least_as_strictly(
        request in any_request(),
        layers in (any_layer(Tier::System), any_layer(Tier::User), any_layer(Tier::Vault)),
        (before, hidden, after) in (words(), words(), words()),
        kinds in categories(),
    ) {
        let policy = policy([layers.0, layers.1, layers.2]);
        let written = [before.join(" "), "$x".to_owned(), after.join(" ")].join(" ");
        let becomes = [before, hidden, after].concat().join(" ");
        let unknown = request.decided(&policy, one(&written, &kinds));
        let known = request.decided(&policy, one(&becomes, &kinds));
        prop_assert!(unknown.action >= known.action, "{written:?} {unknown:?}\n{becomes:?} {known:?}");
    }
}
