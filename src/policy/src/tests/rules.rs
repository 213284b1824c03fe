//! Which rule takes precedence: defaults, layers, doubts, words, paths, categories.

use avfs_request::{Preset, with_hosts};

use super::*;
use crate::defaults::{NET_FLAG, WRITE_OUT};
use crate::opening::Opening;

#[test]
fn the_defaults_ask_only_where_needed() {
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
        // A command without findings is left to the sandbox.
        (&plain, &[], Action::AllowWithCheckpoint, "builtin.mutating"),
    ] {
        let decision = request.decided(&builtin, one("x", categories));
        assert_eq!((decision.action, decision.rule.as_deref()), (action, Some(rule)), "{categories:?}");
    }
    let refused = plain.decided(&builtin, one("curl x", NETWORK));
    assert_eq!(refused.hint.as_deref(), Some("add --net allow=DOMAIN,… or --net host"));
    assert_eq!(refused.reason, "it is networked, and the request does not ask for the network");
    // Privileges passed by the caller alone do not require an approval.
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
fn within_a_layer_the_strictest_rule_counts() {
    for first in Action::ALL {
        for second in Action::ALL {
            let rules = [rule(&["x"], *first), rule(&[], *second)];
            let policy = policy([layer(Tier::System, rules)]);
            let decision = Request::plain().decided(&policy, one("x", WRITE));
            assert_eq!(decision.action, *first.max(second));
        }
    }
}

/// Every combination of actions of three layers and every default.
#[test]
fn layers_loosen_and_tighten_according_to_their_authority() {
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
fn the_order_of_adding_layers_does_not_matter() {
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
fn a_rule_can_tighten_a_doubt_but_not_loosen_it() {
    let (plain, net) = (Request::plain(), Request::with_net());
    for tier in Tier::ALL {
        for action in Action::ALL {
            let policy = policy([layer(*tier, [rule(&[], *action)])]);
            for (request, default) in [(&plain, Action::AllowWithCheckpoint), (&net, Action::RequireApproval)]
            {
                let decision = request.decided(&policy, in_doubt([command("ls", READ)]));
                assert_eq!(decision.action, default.max(*action), "{tier} {action}");
            }
        }
    }
    // A rule about a program does not match a doubt.
    let denies_git = policy([layer(Tier::System, [rule(&["git"], Action::Deny)])]);
    assert_eq!(plain.decided(&denies_git, in_doubt([])).action, Action::AllowWithCheckpoint);
}

#[test]
fn a_doubt_is_mutating_and_the_known_commands_beside_it_are_judged() {
    let (plain, builtin) = (Request::plain(), Policy::builtin());
    let mutating = Categories::of(Category::Mutating);
    // An empty command is a doubt too.
    for doubtful in [|| in_doubt([]), || in_doubt([command("ls", READ)]), || reading([])] {
        let decision = plain.decided(&builtin, doubtful());
        let decided = (decision.action, decision.rule.as_deref(), decision.categories);
        assert_eq!(decided, (Action::AllowWithCheckpoint, Some("builtin.doubt"), mutating));
        assert_eq!((doubtful().categories(), decision.hint), (mutating, None));
    }
    assert_eq!(plain.decided(&builtin, in_doubt([])).reason, "the program is computed");
    for (known, action) in [(ESCAPE, Action::Deny), (NETWORK, Action::RequireApproval)] {
        assert_eq!(plain.decided(&builtin, in_doubt([command("x", known)])).action, action);
    }
}

#[test]
fn a_rule_gives_no_network_to_a_request_with_a_doubt() {
    let mut fetches = rule(&["git", "fetch"], Action::AllowWithCheckpoint);
    fetches.when.net = Some(NetMode::Host);
    let allowing = |doubt: Option<Action>| Layer {
        doubt: doubt.map(|value| Placed { value, place: place(3) }),
        ..layer(Tier::User, [fetches.clone()])
    };
    let plain = Request::plain();
    let fetch = || [command("git fetch", NETWORK)];
    // Control: without the doubt the rule gives its network.
    let sure = plain.decided(&policy([allowing(None)]), reading(fetch()));
    assert_eq!((sure.action, sure.net), (Action::AllowWithCheckpoint, Some(NetMode::Host)));
    for doubt in [None, Some(Action::Allow), Some(Action::AllowWithCheckpoint)] {
        let decision = plain.decided(&policy([allowing(doubt)]), in_doubt(fetch()));
        let decided = (decision.action, decision.rule.as_deref(), decision.net);
        assert_eq!(decided, (Action::RequireApproval, Some("builtin.networked"), None), "{doubt:?}");
    }
    // A command that needs no network runs without the rule's network.
    let local = plain.decided(&policy([allowing(None)]), in_doubt([command("git fetch", WRITE)]));
    assert_eq!((local.action, local.net), (Action::AllowWithCheckpoint, None));
}

/// `add --net` would be followed by `drop --net`.
#[test]
fn hints_about_a_network_beside_a_doubt_do_not_contradict_each_other() {
    let fetch = || in_doubt([command("git fetch", NETWORK)]);
    let hint = |policy: &Policy, request: &Request| request.decided(policy, fetch()).hint.unwrap_or_default();
    let mut with_rule = rule(&["git"], Action::Allow);
    with_rule.when.net = Some(NetMode::Host);
    let (builtin, by_rule) = (Policy::builtin(), policy([layer(Tier::User, [with_rule])]));
    for policy in [&builtin, &by_rule] {
        assert_eq!(hint(policy, &Request::plain()), WRITE_OUT);
    }
    assert_eq!(hint(&builtin, &Request::with_net()), format!("drop --net host, or {WRITE_OUT}"));
    // With the option it would run.
    let doubt = Some(Placed { value: Action::AllowWithCheckpoint, place: place(3) });
    let allowing = policy([Layer { doubt, ..Layer::new(Tier::User) }]);
    assert_eq!(hint(&allowing, &Request::plain()), format!("add {NET_FLAG}"));
    // The option that gives the network is dropped.
    let net = with_hosts(NetMode::None, &[Preset::Node]);
    let openings = vec![Opening::Preset(Preset::Node)];
    let of_preset = Request { net, openings, ..Request::with_net() };
    assert_eq!(hint(&builtin, &of_preset), format!("drop --preset node, or {WRITE_OUT}"));
}

#[test]
fn only_the_system_and_the_user_can_loosen_doubts() {
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
        assert_eq!(project.action, Action::AllowWithCheckpoint.max(one));
        for two in Action::ALL.iter().copied() {
            let both = decided(vec![doubting(Tier::System, one), doubting(Tier::User, two)]);
            assert_eq!(both.action, one.max(two), "{one} {two}");
        }
    }
}

#[test]
fn an_unknown_word_tightens_and_never_loosens() {
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
    // A possible match tightens a verdict that another rule loosened.
    let both = [rule(&["git"], Action::Allow), rule(&["git", "push"], Action::Deny)];
    let said = plain.explained(&policy([layer(Tier::User, both)]), one("git $x", WRITE));
    assert_eq!(said.decision.action, Action::Deny);
    assert!(said.decision.reason.contains("may match the rule"), "{}", said.decision.reason);
    // The user cannot loosen a command that the system's rule may match.
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
    // The words of the prefix are not arguments.
    assert!(!fits(&["push"], Action::Deny, "git push origin"));
}

#[test]
fn paths_and_forks_are_matched_by_globs() {
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
fn a_rule_about_a_category_decides_only_that_category() {
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
    // A rule that names the program decides all its categories.
    let named = policy([layer(Tier::User, [rule(&["sudo"], Action::Allow)])]);
    assert_eq!(plain.decided(&named, one("sudo touch x", ESCAPE)).action, Action::Allow);
    // A rule that names both decides the program only for that category.
    let mut fetches = rule(&["curl"], Action::Allow);
    fetches.when.categories = Categories::of(Category::Networked);
    let fetches = policy([layer(Tier::User, [fetches])]);
    let out = [Category::Networked, Category::HostEscapeRisk];
    assert_eq!(plain.decided(&fetches, one("curl x", &[Category::Networked])).action, Action::Allow);
    assert_eq!(plain.decided(&fetches, one("curl -o /etc/x", &out)).action, Action::Deny);
}

#[test]
fn an_explanation_shows_the_effect_of_each_rule() {
    let mut weaker = rule(&[], Action::AllowWithCheckpoint);
    weaker.name = "weaker".to_owned();
    let layers = [
        layer(Tier::System, [weaker, rule(&["git"], Action::RequireApproval)]),
        layer(Tier::User, [rule(&["git"], Action::Allow)]),
        layer(Tier::Vault, [rule(&["git", "push"], Action::Deny), rule(&["git", "log"], Action::Deny)]),
    ];
    let explained = Request::plain().explained(&policy(layers), one("git push", WRITE));
    let effects: Vec<(Tier, &str, Effect)> =
        explained.commands[0].said.iter().map(|said| (said.tier, said.rule.as_str(), said.effect)).collect();
    assert_eq!(
        effects,
        [
            (Tier::System, "weaker", Effect::Outweighed),
            (Tier::System, "says-require_approval", Effect::Counts),
            (Tier::User, "says-allow", Effect::MayNotLoosen),
            (Tier::Vault, "says-deny", Effect::Counts),
        ]
    );
    assert_eq!(explained.commands[0].baseline.rule, "builtin.mutating");
    assert_eq!(explained.decision.rule.as_deref(), Some("says-deny"));
    assert_eq!(explained.decision.reason, "`git push` matches the rule says-deny");
}
