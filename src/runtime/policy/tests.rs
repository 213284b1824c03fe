//! What the rules mean, one semantic at a time, on readings made by hand.

use std::path::Path;

use super::*;
use crate::ids::ForkName;
use crate::runtime::decision::{Action, ExecutionDecision, OnViolation};
use crate::runtime::{CommandLine, Confinement, ExecutionTimeout, NetMode, Profile, SeccompProfile};

/// A request to run `true` in `/w`, with nothing around it.
#[derive(Debug)]
struct Request {
    command: CommandLine,
    fork: Option<ForkName>,
    cwd: &'static str,
    net: NetMode,
    confinement: Confinement,
    profile: Profile,
    rw: Vec<&'static Path>,
    secrets: Vec<&'static str>,
}

impl Request {
    fn plain() -> Self {
        Self {
            command: CommandLine::Argv(vec!["true".into()]),
            fork: None,
            cwd: "/w",
            net: NetMode::None,
            confinement: Confinement::DEFAULT,
            profile: Profile::Strict,
            rw: Vec::new(),
            secrets: Vec::new(),
        }
    }

    fn with_net() -> Self {
        Self { net: NetMode::Host, ..Self::plain() }
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            command: &self.command,
            fork: self.fork.as_ref(),
            cwd: Path::new(self.cwd),
            workspace: Path::new("/w"),
            project: Path::new("/w"),
            home: None,
            net: &self.net,
            confinement: self.confinement,
            profile: self.profile,
            timeout: ExecutionTimeout::DEFAULT,
            rw: &self.rw,
            secrets: &self.secrets,
        }
    }

    fn explained(&self, policy: &Policy, reading: Reading) -> Explanation {
        policy.judge(&self.asked(), reading)
    }

    fn decided(&self, policy: &Policy, reading: Reading) -> ExecutionDecision {
        self.explained(policy, reading).decision
    }
}

/// A simple command; a word with a `$` is one that only the shell knows.
fn command(text: &str, categories: &[Category]) -> Judged {
    let word = |text: &str| match text.contains('$') {
        true => Word::Unknown(text.to_owned()),
        false => Word::Known(text.to_owned()),
    };
    let finding = |category: &Category| Finding { category: *category, why: format!("it is {category}") };
    Judged {
        words: text.split_whitespace().map(word).collect(),
        categories: categories.iter().copied().collect(),
        findings: categories.iter().map(finding).collect(),
    }
}

fn reading(commands: impl IntoIterator<Item = Judged>) -> Reading {
    Reading { commands: commands.into_iter().collect(), doubts: Vec::new() }
}

fn one(text: &str, categories: &[Category]) -> Reading {
    reading([command(text, categories)])
}

fn in_doubt(commands: impl IntoIterator<Item = Judged>) -> Reading {
    Reading { doubts: vec!["the program is computed".to_owned()], ..reading(commands) }
}

fn place(line: usize) -> Place {
    Place { file: "/etc/avfs/policy.toml".into(), line }
}

fn rule(prefix: &[&str], action: Action) -> Rule {
    let prefix = prefix.iter().map(|word| vec![(*word).to_owned()]).collect();
    Rule {
        name: format!("says-{action}"),
        place: place(1),
        when: Conditions { prefix, ..Conditions::default() },
        action,
        reason: None,
        examples: Vec::new(),
    }
}

fn layer(tier: Tier, rules: impl IntoIterator<Item = Rule>) -> Layer {
    Layer { rules: rules.into_iter().collect(), ..Layer::new(tier) }
}

fn policy(layers: impl IntoIterator<Item = Layer>) -> Policy {
    layers.into_iter().fold(Policy::builtin(), Policy::with)
}

const READ: &[Category] = &[Category::ReadOnly];
const WRITE: &[Category] = &[Category::Mutating];
const NETWORK: &[Category] = &[Category::Networked];
const ESCAPE: &[Category] = &[Category::Mutating, Category::HostEscapeRisk];

#[test]
fn the_defaults_protect_without_annoying() {
    let builtin = Policy::builtin();
    let (plain, net) = (Request::plain(), Request::with_net());
    for (request, categories, action, rule) in [
        (&plain, READ, Action::Allow, "builtin.read_only"),
        (&plain, WRITE, Action::AllowWithCheckpoint, "builtin.mutating"),
        (
            &plain,
            &[Category::Mutating, Category::Destructive],
            Action::AllowWithCheckpoint,
            "builtin.destructive",
        ),
        (&plain, &[Category::Interactive], Action::AllowWithCheckpoint, "builtin.interactive"),
        (&plain, NETWORK, Action::RequireApproval, "builtin.networked"),
        (&net, NETWORK, Action::Allow, "builtin.networked"),
        (&net, &[Category::Networked, Category::Mutating], Action::AllowWithCheckpoint, "builtin.mutating"),
        (&net, ESCAPE, Action::Deny, "builtin.host_escape_risk"),
        // Of what nothing is known the sandbox takes care.
        (&plain, &[], Action::AllowWithCheckpoint, "builtin.mutating"),
    ] {
        let decision = request.decided(&builtin, one("x", categories));
        assert_eq!((decision.action, decision.rule.as_deref()), (action, Some(rule)), "{categories:?}");
    }
    let refused = plain.decided(&builtin, one("curl x", NETWORK));
    assert_eq!(refused.hint.as_deref(), Some("add --net allow=DOMAIN,… or --net host"));
    assert_eq!(refused.reason, "it is networked, and the request does not ask for the network");
    // What the caller hands over is no reason to ask by itself.
    let open = Request { profile: Profile::Host, rw: vec![Path::new("/srv")], ..Request::plain() };
    assert_eq!(open.decided(&builtin, one("ls", READ)).action, Action::Allow);
}

#[test]
fn the_strictest_command_wins() {
    let commands = [command("ls", READ), command("sudo x", ESCAPE), command("touch x", WRITE)];
    let decision = Request::plain().decided(&Policy::builtin(), reading(commands));
    assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some("builtin.host_escape_risk")));
    let all: Categories = [Category::Mutating, Category::HostEscapeRisk].into_iter().collect();
    assert_eq!(decision.categories, all);
}

#[test]
fn of_one_layer_the_strictest_rule_counts() {
    for first in Action::ALL {
        for second in Action::ALL {
            let rules = [rule(&["x"], *first), rule(&[], *second)];
            let policy = policy([layer(Tier::System, rules)]);
            let decision = Request::plain().decided(&policy, one("x", WRITE));
            assert_eq!(decision.action, *first.max(second));
        }
    }
}

/// Every combination of what three layers can say over every default.
#[test]
fn layers_loosen_and_tighten_as_their_place_allows() {
    let say = || std::iter::once(None).chain(Action::ALL.iter().copied().map(Some));
    let defaults =
        [(READ, Action::Allow), (WRITE, Action::AllowWithCheckpoint), (NETWORK, Action::RequireApproval)];
    let mut seen = 0;
    for (categories, default) in defaults.into_iter().chain([(ESCAPE, Action::Deny)]) {
        for system in say() {
            for user in say() {
                for vault in say() {
                    let expected = match (system, user) {
                        (None, None) => default,
                        (None, Some(user)) => user,
                        (Some(system), None) => system,
                        (Some(system), Some(user)) => system.max(user),
                    };
                    let expected = vault.map_or(expected, |vault| vault.max(expected));
                    let tiers = [(Tier::System, system), (Tier::User, user), (Tier::Vault, vault)];
                    let layers = tiers.map(|(tier, action)| layer(tier, action.map(|it| rule(&["x"], it))));
                    let decision = Request::plain().decided(&policy(layers), one("x y", categories));
                    assert_eq!(decision.action, expected, "{default} {system:?} {user:?} {vault:?}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, 4 * 5 * 5 * 5);
}

#[test]
fn the_order_in_which_layers_are_given_does_not_matter() {
    let layers = || {
        [
            layer(Tier::System, [rule(&["x"], Action::RequireApproval)]),
            layer(Tier::User, [rule(&["x"], Action::Allow)]),
            layer(Tier::Vault, [rule(&["x"], Action::AllowWithCheckpoint)]),
        ]
    };
    let forward = Request::plain().explained(&policy(layers()), one("x", WRITE));
    let mut reversed = layers();
    reversed.reverse();
    assert_eq!(Request::plain().explained(&policy(reversed), one("x", WRITE)), forward);
    assert_eq!(forward.decision.action, Action::RequireApproval);
}

#[test]
fn a_doubt_can_be_denied_but_never_allowed() {
    let plain = Request::plain();
    for tier in Tier::ALL {
        for action in Action::ALL {
            let policy = policy([layer(*tier, [rule(&[], *action)])]);
            let decision = plain.decided(&policy, in_doubt([command("ls", READ)]));
            assert_eq!(decision.action, Action::RequireApproval.max(*action), "{tier} {action}");
        }
    }
    let builtin = Policy::builtin();
    let unsure = plain.decided(&builtin, in_doubt([command("ls", READ)]));
    assert!(!unsure.categories.contains(Category::ReadOnly), "nobody can tell that it only looks");
    let decision = plain.decided(&builtin, in_doubt([]));
    assert_eq!(decision.rule.as_deref(), Some("builtin.doubt"));
    assert_eq!(decision.reason, "the program is computed");
    // A rule about some program is not about what cannot be read.
    let denies_git = policy([layer(Tier::System, [rule(&["git"], Action::Deny)])]);
    assert_eq!(plain.decided(&denies_git, in_doubt([])).action, Action::RequireApproval);
    // Nothing to run at all is a doubt too.
    assert_eq!(plain.decided(&builtin, reading([])).action, Action::RequireApproval);
    // And what is certain is still judged.
    let denied = plain.decided(&builtin, in_doubt([command("sudo x", ESCAPE)]));
    assert_eq!(denied.action, Action::Deny);
}

#[test]
fn what_to_do_in_doubt_is_the_administrators_and_the_users_to_say() {
    let doubting = |tier: Tier, action: Action| Layer {
        doubt: Some(Placed { value: action, place: place(3) }),
        ..Layer::new(tier)
    };
    let decided = |layers: Vec<Layer>| Request::plain().decided(&policy(layers), in_doubt([]));
    for one in Action::ALL.iter().copied() {
        for tier in [Tier::System, Tier::User] {
            let decision = decided(vec![doubting(tier, one)]);
            assert_eq!((decision.action, decision.rule.as_deref()), (one, Some("/etc/avfs/policy.toml:3")));
        }
        let project = decided(vec![doubting(Tier::Vault, one)]);
        assert_eq!(project.action, Action::RequireApproval.max(one));
        for two in Action::ALL.iter().copied() {
            let both = decided(vec![doubting(Tier::System, one), doubting(Tier::User, two)]);
            assert_eq!(both.action, one.max(two), "{one} {two}");
        }
    }
}

#[test]
fn a_word_that_only_the_shell_knows_tightens_and_never_loosens() {
    let plain = Request::plain();
    for action in Action::ALL {
        let policy = policy([layer(Tier::System, [rule(&["git", "push"], *action)])]);
        let at = |text: &str| plain.decided(&policy, one(text, WRITE)).action;
        assert_eq!(at("git push"), *action);
        let stricter = Action::AllowWithCheckpoint.max(*action);
        for text in ["git $x", "git $x push", "$git push", "$all", "/usr/bin/git push"] {
            assert_eq!(at(text), stricter, "{text} {action}");
        }
        for text in ["git pull $x", "git", "gitk push", "ls git push"] {
            assert_eq!(at(text), Action::AllowWithCheckpoint, "{text} {action}");
        }
    }
    // One that may be meant tightens what another one loosened.
    let both = [rule(&["git"], Action::Allow), rule(&["git", "push"], Action::Deny)];
    let said = plain.explained(&policy([layer(Tier::User, both)]), one("git $x", WRITE));
    assert_eq!(said.decision.action, Action::Deny);
    assert!(said.decision.reason.contains("may be what the rule"), "{}", said.decision.reason);
    // The user cannot loosen what the system's rule may be about.
    let system = layer(Tier::System, [rule(&["git", "push"], Action::Deny)]);
    let user = layer(Tier::User, [rule(&["git"], Action::Allow)]);
    assert_eq!(plain.decided(&policy([system, user]), one("git $x", WRITE)).action, Action::Deny);
}

#[test]
fn arguments_are_matched_by_globs() {
    let plain = Request::plain();
    let glob = |text: &str| match text.strip_prefix('!') {
        Some(text) => ArgPattern::None(Pattern::of_text(text).unwrap()),
        None => ArgPattern::Some(Pattern::of_text(text).unwrap()),
    };
    let fits = |args: &[&str], action: Action, text: &str| {
        let mut rule = rule(&["git", "push"], action);
        rule.when.args = args.iter().map(|text| glob(text)).collect();
        plain.decided(&policy([layer(Tier::System, [rule])]), one(text, WRITE)).action == action
    };
    let force: &[&str] = &["--force*", "!--dry-run"];
    assert!(fits(force, Action::Deny, "git push --force origin"));
    assert!(fits(force, Action::Deny, "git push origin --force-with-lease=a/b"));
    assert!(!fits(force, Action::Deny, "git push origin"));
    assert!(!fits(force, Action::Deny, "git push --force --dry-run"));
    assert!(fits(force, Action::Deny, "git push $options"));
    assert!(!fits(force, Action::Deny, "git push $options --dry-run"));
    assert!(fits(&["!--force*"], Action::Allow, "git push origin"));
    assert!(!fits(&["!--force*"], Action::Allow, "git push $options"));
    // The words of the prefix are no arguments.
    assert!(!fits(&["push"], Action::Deny, "git push origin"));
}

#[test]
fn the_place_is_matched_by_globs() {
    let mut deny = rule(&[], Action::Deny);
    deny.when.cwd = Some(Pattern::of_path("/srv/**").unwrap());
    let by_cwd = policy([layer(Tier::System, [deny])]);
    for (cwd, denied) in [("/srv", true), ("/srv/a/b", true), ("/srvx", false), ("/w", false)] {
        let request = Request { cwd, ..Request::plain() };
        let decision = request.decided(&by_cwd, one("ls", READ));
        assert_eq!(decision.action == Action::Deny, denied, "{cwd}");
    }
    let mut deny = rule(&[], Action::Deny);
    deny.when.fork = Some(Pattern::of_text("release-*").unwrap());
    let by_fork = policy([layer(Tier::System, [deny])]);
    for (fork, denied) in [(Some("release-1"), true), (Some("main"), false), (None, false)] {
        let fork = fork.map(|name| ForkName::parse(name).unwrap());
        let request = Request { fork, ..Request::plain() };
        let decision = request.decided(&by_fork, one("ls", READ));
        assert_eq!(decision.action == Action::Deny, denied);
    }
}

#[test]
fn a_rule_about_a_kind_answers_for_that_kind_alone() {
    let about = |category: Category| {
        let mut rule = rule(&[], Action::Allow);
        rule.when.categories = Categories::of(category);
        rule
    };
    let plain = Request::plain();
    let writes = policy([layer(Tier::User, [about(Category::Mutating)])]);
    assert_eq!(plain.decided(&writes, one("touch x", WRITE)).action, Action::Allow);
    assert_eq!(plain.decided(&writes, one("sudo touch x", ESCAPE)).action, Action::Deny);
    let both = policy([layer(Tier::User, [about(Category::Mutating), about(Category::HostEscapeRisk)])]);
    assert_eq!(plain.decided(&both, one("sudo touch x", ESCAPE)).action, Action::Allow);
    // One that names the program answers for the whole of it.
    let named = policy([layer(Tier::User, [rule(&["sudo"], Action::Allow)])]);
    assert_eq!(plain.decided(&named, one("sudo touch x", ESCAPE)).action, Action::Allow);
    // One that names both answers for what the program does of that kind.
    let mut fetches = rule(&["curl"], Action::Allow);
    fetches.when.categories = Categories::of(Category::Networked);
    let fetches = policy([layer(Tier::User, [fetches])]);
    let out = [Category::Networked, Category::HostEscapeRisk];
    assert_eq!(plain.decided(&fetches, one("curl x", &[Category::Networked])).action, Action::Allow);
    assert_eq!(plain.decided(&fetches, one("curl -o /etc/x", &out)).action, Action::Deny);
}

#[test]
fn an_agent_asks_for_the_network_and_for_what_it_is_given() {
    let agent = Policy::builtin().with_profile(PolicyProfile::Agent);
    let (plain, net) = (Request::plain(), Request::with_net());
    assert_eq!(plain.decided(&agent, one("ls", READ)).action, Action::Allow);
    for (request, reading) in [
        (&plain, one("curl x", NETWORK)),
        (&net, one("curl x", NETWORK)),
        // With the network at hand any program may use it.
        (&net, one("make", WRITE)),
    ] {
        let decision = request.decided(&agent, reading);
        assert_eq!(decision.action, Action::RequireApproval);
    }
    let told = net.decided(&agent, one("curl x", NETWORK));
    assert_eq!(told.rule.as_deref(), Some("profile.agent.net"));
    let open = Confinement { seccomp: SeccompProfile::Off, ..Confinement::DEFAULT };
    let given = [
        (Request { secrets: vec!["TOKEN"], ..Request::plain() }, "profile.agent.secrets"),
        (Request { rw: vec![Path::new("/srv")], ..Request::plain() }, "profile.agent.rw"),
        (Request { profile: Profile::Host, ..Request::plain() }, "profile.agent.profile"),
        (Request { confinement: open, ..Request::plain() }, "profile.agent.confinement"),
    ];
    let allowing = policy([layer(Tier::System, [rule(&["ls"], Action::Allow)])]);
    let allowing = allowing.with_profile(PolicyProfile::Agent);
    for (request, rule) in &given {
        for policy in [&agent, &allowing] {
            let decision = request.decided(policy, one("ls", READ));
            assert_eq!((decision.action, decision.rule.as_deref()), (Action::RequireApproval, Some(*rule)));
        }
    }
    // It never loosens what is stricter.
    assert_eq!(
        net.decided(&agent, one("sudo curl", &[Category::Networked, Category::HostEscapeRisk])).action,
        Action::Deny
    );
}

#[test]
fn a_rule_answers_for_the_profile_of_its_own_layer_alone() {
    let net = Request::with_net();
    let allow = || rule(&["npm"], Action::Allow);
    let with = |tier, rules: Vec<Rule>, profile: Option<PolicyProfile>| Layer {
        profiles: profile.into_iter().collect(),
        ..layer(tier, rules)
    };
    let agent = Some(PolicyProfile::Agent);
    for (layers, expected) in [
        (vec![with(Tier::User, vec![allow()], agent)], Action::Allow),
        (vec![with(Tier::System, vec![allow()], agent)], Action::Allow),
        // Who takes a profile on wants more care than others have.
        (
            vec![with(Tier::System, vec![allow()], None), with(Tier::User, vec![], agent)],
            Action::RequireApproval,
        ),
        // What the system has said of it, the user cannot take back.
        (
            vec![with(Tier::System, vec![], agent), with(Tier::User, vec![allow()], None)],
            Action::RequireApproval,
        ),
        // What the project adds holds, whoever allowed it.
        (
            vec![with(Tier::User, vec![allow()], None), with(Tier::Vault, vec![], agent)],
            Action::RequireApproval,
        ),
    ] {
        assert_eq!(net.decided(&policy(layers), one("npm install", NETWORK)).action, expected);
    }
}

#[test]
fn in_ci_nobody_is_asked() {
    let ci = Policy::builtin().with_profile(PolicyProfile::Ci);
    let decision = Request::plain().decided(&ci, one("curl x", NETWORK));
    assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some("profile.ci")));
    assert_eq!(decision.hint.as_deref(), Some("add --net allow=DOMAIN,… or --net host"));
    assert!(decision.reason.contains("builtin.networked"), "{}", decision.reason);
    for (reading, action) in
        [(one("ls", READ), Action::Allow), (one("x", WRITE), Action::AllowWithCheckpoint)]
    {
        assert_eq!(Request::plain().decided(&ci, reading).action, action);
    }
    assert_eq!(Request::plain().decided(&ci, in_doubt([])).action, Action::Deny);
    let both = ci.with_profile(PolicyProfile::Agent);
    assert_eq!(Request::with_net().decided(&both, one("curl x", NETWORK)).action, Action::Deny);
}

#[test]
fn caps_of_all_layers_hold_and_name_their_line_and_the_flag() {
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::of_path(text).unwrap()).collect();
    let capped = |tier, caps| Layer { caps, ..Layer::new(tier) };
    let system = Caps {
        rw: Some(Placed { value: patterns(&["/srv/**"]), place: place(3) }),
        secrets: Some(Placed { value: patterns(&["NPM_*"]), place: place(4) }),
        ..Caps::default()
    };
    let vault = Caps {
        net: Some(Placed { value: NetMode::None, place: place(5) }),
        rw: Some(Placed { value: patterns(&["/srv/data/**"]), place: place(6) }),
        profile: Some(Placed { value: Profile::Strict, place: place(7) }),
        ..Caps::default()
    };
    let policy = policy([capped(Tier::System, system), capped(Tier::Vault, vault)]);
    let rw = |path: &'static str| Request { rw: vec![Path::new(path)], ..Request::plain() };
    let secret = |name| Request { secrets: vec![name], ..Request::plain() };
    for (request, broken) in [
        (Request::plain(), None),
        (rw("/srv/data/x"), None),
        (rw("/srv/data"), None),
        (rw("/srv/other"), Some(("caps.rw", ":6 ", "drop --rw /srv/other"))),
        (rw("/etc"), Some(("caps.rw", ":3 ", "drop --rw /etc"))),
        (rw("/srv/data/../../etc"), Some(("caps.rw", ":3 ", "drop --rw /srv/data/../../etc"))),
        (secret("NPM_TOKEN"), None),
        (secret("AWS_KEY"), Some(("caps.secrets", ":4 ", "drop --secret AWS_KEY or --env AWS_KEY"))),
        (Request::with_net(), Some(("caps.net", ":5 ", "drop --net host"))),
        (
            Request { profile: Profile::Host, ..Request::plain() },
            Some(("caps.profile", ":7 ", "drop --profile host")),
        ),
    ] {
        let decision = request.decided(&policy, one("ls", READ));
        match broken {
            None => assert_eq!(decision.action, Action::Allow, "{decision:?}"),
            Some((rule, line, hint)) => {
                assert_eq!((decision.action, decision.rule.as_deref()), (Action::Deny, Some(rule)));
                assert!(decision.reason.contains(line), "{}", decision.reason);
                assert_eq!(decision.hint.as_deref(), Some(hint));
            }
        }
    }
}

#[test]
fn a_list_counts_as_a_network_and_is_held_by_a_cap_that_is_one() {
    let with = |net: &str| Request { net: net.parse().unwrap(), ..Request::plain() };
    // It gives the network, as far as the defaults and an agent are concerned.
    let builtin = Policy::builtin();
    assert_eq!(with("allow=a.org").decided(&builtin, one("curl x", NETWORK)).action, Action::Allow);
    let agent = Policy::builtin().with_profile(PolicyProfile::Agent);
    for reading in [one("curl x", NETWORK), one("make", WRITE)] {
        let told = with("allow=a.org").decided(&agent, reading);
        assert_eq!((told.action, told.rule.as_deref()), (Action::RequireApproval, Some("profile.agent.net")));
        assert_eq!(told.hint.as_deref(), Some("drop --net allow=a.org if it is not needed"));
    }
    let cap = |net: &str| {
        let net = Some(Placed { value: net.parse().unwrap(), place: place(5) });
        policy([Layer { caps: Caps { net, ..Caps::default() }, ..Layer::new(Tier::Vault) }])
    };
    let list = "allow=*.a.org,10.0.0.0/8:5432";
    for (cap_net, net, hint) in [
        (list, "none", None),
        (list, "allow=x.a.org,10.1.0.0/16:5432", None),
        ("host", "allow=a.org", None),
        (list, "allow=x.a.org,a.org", Some("drop a.org from --net allow=a.org,x.a.org")),
        (list, "allow=10.1.2.3", Some("drop 10.1.2.3 from --net allow=10.1.2.3")),
        (list, "host", Some("drop --net host")),
        ("none", "allow=a.org", Some("drop --net allow=a.org")),
    ] {
        let told = with(net).decided(&cap(cap_net), one("ls", READ));
        assert_eq!(told.action, if hint.is_some() { Action::Deny } else { Action::Allow }, "{cap_net} {net}");
        if hint.is_some() {
            assert_eq!(
                (told.rule.as_deref(), told.hint.as_deref()),
                (Some("caps.net"), hint),
                "{cap_net} {net}"
            );
        }
    }
}

#[test]
fn times_are_the_shortest_and_a_discard_holds() {
    let timeout = |tier, millis| {
        let value = ExecutionTimeout::Millis(millis);
        let caps = Caps { timeout: Some(Placed { value, place: place(1) }), ..Caps::default() };
        Layer { caps, ..Layer::new(tier) }
    };
    let plain = Request::plain();
    let none = plain.decided(&Policy::builtin(), one("ls", READ));
    assert_eq!((none.timeout_max, none.on_violation), (ExecutionTimeout::None, OnViolation::Keep));
    assert_eq!(none.approval_seconds, ExecutionDecision::APPROVAL_SECONDS);
    let both = policy([timeout(Tier::System, 5_000), timeout(Tier::Vault, 9_000)]);
    let decision = plain.decided(&both, one("ls", READ));
    assert_eq!((decision.timeout_max, decision.action), (ExecutionTimeout::Millis(5_000), Action::Allow));
    let said = |tier, on_violation, seconds| Layer {
        on_violation: Some(on_violation),
        approval_seconds: Some(seconds),
        ..Layer::new(tier)
    };
    let day = ExecutionDecision::APPROVAL_SECONDS;
    for (layers, on_violation, seconds) in [
        (vec![said(Tier::User, OnViolation::Keep, 2 * day)], OnViolation::Keep, 2 * day),
        (vec![said(Tier::Vault, OnViolation::Discard, 2 * day)], OnViolation::Discard, day),
        (
            vec![said(Tier::User, OnViolation::Discard, 2 * day), said(Tier::Vault, OnViolation::Keep, 60)],
            OnViolation::Discard,
            60,
        ),
    ] {
        let decision = plain.decided(&policy(layers), one("ls", READ));
        assert_eq!((decision.on_violation, decision.approval_seconds), (on_violation, seconds));
    }
}

#[test]
fn the_lowest_cap_of_a_limit_holds_and_nobody_is_refused_for_it() {
    let layer = |tier, text: &str| {
        Layer::parse(tier, Path::new("policy.toml"), &format!("[caps]\n{text}"), read).unwrap()
    };
    let both = policy([
        layer(Tier::System, "memory = '2GiB'\ncpus = 1.5\n"),
        layer(Tier::Vault, "memory = '1GiB'\npids = 50\ncpus = 2\nfile_size = 10\n"),
    ]);
    let decision = Request::plain().decided(&both, one("ls", READ));
    let set: Vec<_> = decision.limits_max.set().map(|(kind, value)| (kind.word(), value)).collect();
    assert_eq!(set, [("memory", 1 << 30), ("cpus", 1500), ("pids", 50), ("file_size", 10)]);
    assert_eq!(decision.action, Action::Allow);
    for bad in ["memory = 'none'", "memory = 0", "pids = -1", "cpus = 0", "disk = true", "file-size = 1"] {
        let read = Layer::parse(Tier::User, Path::new("p"), &format!("[caps]\n{bad}\n"), read);
        assert!(read.is_err(), "{bad} was taken");
    }
}

#[test]
fn an_explanation_tells_what_came_of_each_rule() {
    let mut weaker = rule(&[], Action::AllowWithCheckpoint);
    weaker.name = "weaker".to_owned();
    let layers = [
        layer(Tier::System, [weaker, rule(&["git"], Action::RequireApproval)]),
        layer(Tier::User, [rule(&["git"], Action::Allow)]),
        layer(Tier::Vault, [rule(&["git", "push"], Action::Deny), rule(&["git", "log"], Action::Deny)]),
    ];
    let explained = Request::plain().explained(&policy(layers), one("git push", WRITE));
    let told: Vec<(Tier, &str, Effect)> =
        explained.commands[0].said.iter().map(|said| (said.tier, said.rule.as_str(), said.effect)).collect();
    assert_eq!(
        told,
        [
            (Tier::System, "weaker", Effect::Outweighed),
            (Tier::System, "says-require_approval", Effect::Counts),
            (Tier::User, "says-allow", Effect::MayNotLoosen),
            (Tier::Vault, "says-deny", Effect::Counts),
        ]
    );
    assert_eq!(explained.commands[0].baseline.rule, "builtin.mutating");
    assert_eq!(explained.decision.rule.as_deref(), Some("says-deny"));
    assert_eq!(explained.decision.reason, "`git push` is what the rule says-deny is about");
}

/// Policies, readings and requests of a few words, so that they meet.
mod arbitrary {
    use proptest::prelude::*;
    use proptest::sample::select;

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
                prop_assert!(before.action >= Action::RequireApproval);
            }
            prop_assert_eq!(request.decided(&with, reading()), after);
        }

        /// Whatever a word turns out to be, it was judged at least as strictly before that was known.
        #[test]
        fn a_word_that_is_not_known_hides_nothing(
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
}
