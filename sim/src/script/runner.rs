//! The runner of scripts in a World.

use super::scene::read_scene;
use super::steps::{read_packets, read_step};
use super::words::{Parsed, call, read_span, read_time, site, sites, word};
use crate::history::Ask;
use crate::log::Scene;
use crate::step::Step;
use crate::transcript::Transcript;
use crate::world::World;
use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How long `until` and `settle` wait by default.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// Runs a script in a World.
pub struct ScriptRunner<'a> {
    scene: Scene,
    world: Option<World>,
    prepare: Box<dyn Fn(World) -> World + 'a>,
    transcript: Transcript,
}

impl std::fmt::Debug for ScriptRunner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScriptRunner({:?}, {:?})", self.scene, self.world)
    }
}

impl<'a> ScriptRunner<'a> {
    /// A runner with a World that `prepare` changes before anything happens.
    pub fn new(prepare: impl Fn(World) -> World + 'a) -> ScriptRunner<'a> {
        let (world, transcript) = (None, Transcript::default());
        ScriptRunner { scene: Scene::new(1), world, prepare: Box::new(prepare), transcript }
    }

    /// The World, in its initial state if the script has not begun.
    pub fn world(&mut self) -> &mut World {
        let (scene, prepare) = (&self.scene, &self.prepare);
        self.world.get_or_insert_with(|| prepare(scene.world()))
    }

    /// The script with its outcome.
    pub fn run_script(&mut self, script: &str) -> std::io::Result<String> {
        goldenscript::generate(self, script)
    }

    /// Runs until a condition holds, and reports the outcome.
    fn until(&mut self, args: &mut ArgumentConsumer<'_>) -> Parsed<()> {
        let within = args.take_key("within").map(read_span).transpose()?.unwrap_or(WAIT_LIMIT);
        let what = word(args, "a condition to wait for")?;
        let of = |world: &World, call: usize| {
            world.named(call).ok_or_else(|| format!("there is no c{call}"))
        };
        let world = self.world();
        let so: Box<dyn Fn(&World) -> bool> = match what {
            "granted" => one(of(world, call(args)?)?, World::is_granted),
            "answered" => one(of(world, call(args)?)?, World::is_answered),
            "lost" => one(of(world, call(args)?)?, |world, ask| world.lost(ask).is_some()),
            "ready" => at(site(args)?, World::is_ready),
            "suspended" => at(site(args)?, |world, site| !world.is_ready(site)),
            "gone" => at(site(args)?, |world, site| !world.is_alive(site)),
            "elder" => at(site(args)?, |world, site| world.find_elder() == Some(site)),
            "grantor" => {
                let (site, service) = (site(args)?, word(args, "a service")?.to_string());
                Box::new(move |world| world.find_grantor(&service) == Some(site))
            }
            "view" => {
                let these = sites(args)?;
                Box::new(move |world| world.in_view() == these)
            }
            "held" => {
                let these = read_packets(args)?;
                Box::new(move |world| world.held_of(&these) > 0)
            }
            "idle" => Box::new(World::is_empty_everywhere),
            _ => return Err(format!("cannot wait for {what:?}").into()),
        };
        if world.run_until(so, within) || world.broken().is_some() {
            return Ok(());
        }
        Err(format!("it did not come about within {within:?}\n{}", show(world)).into())
    }

    /// Cuts all ways between the two groups.
    fn part(&mut self, group: &[usize], others: &[usize]) -> Parsed<()> {
        for (a, b) in group.iter().flat_map(|a| others.iter().map(move |b| (*a, *b))) {
            if a == b
                || !self.world().apply(&Step::Cut(a, b))
                || !self.world().apply(&Step::Cut(b, a))
            {
                return Err(format!("m{a} and m{b} cannot be parted").into());
            }
        }
        Ok(())
    }

    fn command(&mut self, name: &str, args: &mut ArgumentConsumer<'_>) -> Parsed<String> {
        let mut said = String::new();
        if self.world.is_none() && read_scene(&mut self.scene, name, args)? {
            return Ok(said);
        }
        let mut name = name;
        if name == "at" {
            let time = read_time(word(args, "a time")?)?;
            self.world().run_to(time);
            name = args.next_pos().unwrap_or_default();
        }
        match name {
            "" => {}
            "run" => {
                let span = read_span(word(args, "a span")?)?;
                self.world().run_for(span);
            }
            "until" => self.until(args)?,
            "settle" => {
                let world = self.world();
                if !world.run_until(World::is_settled, WAIT_LIMIT * 2) && world.broken().is_none() {
                    return Err(format!(
                        "there is not one view with every running process\n{}",
                        show(world)
                    )
                    .into());
                }
            }
            "show" => said += &show(self.world()),
            "part" => {
                let (a, b) = (site(args)?, site(args)?);
                self.part(&[a], &[b])?;
            }
            "isolate" => {
                let alone = site(args)?;
                let others: Vec<usize> =
                    self.world().sites().filter(|site| *site != alone).collect();
                self.part(&[alone], &others)?;
            }
            "split" => {
                let group = sites(args)?;
                let others: Vec<usize> =
                    self.world().sites().filter(|site| !group.contains(site)).collect();
                self.part(&group, &others)?;
            }
            name => {
                let step =
                    read_step(name, args)?.ok_or_else(|| format!("there is no {name:?} here"))?;
                let world = self.world();
                let done = world.broken().is_none() && world.apply(&step);
                let is_broken = world.broken().is_some();
                said += match (&step, done) {
                    (Step::Fence(_), true) => "the guard gives its token\n",
                    (Step::Fence(_) | Step::Write(_), false) if !is_broken => {
                        "the guard gives no token\n"
                    }
                    (Step::Restore | Step::RestorePart(_), true) => "everything works\n",
                    (Step::Restore | Step::RestorePart(_), false) if !is_broken => {
                        "a quorum is lost for good\n"
                    }
                    (_, false) if !is_broken => "there is nothing to do it to\n",
                    _ => "",
                };
            }
        }
        args.reject_next()?;
        Ok(said)
    }
}

fn one(ask: Ask, so: fn(&World, Ask) -> bool) -> Box<dyn Fn(&World) -> bool> {
    Box::new(move |world| so(world, ask))
}

fn at(site: usize, so: fn(&World, usize) -> bool) -> Box<dyn Fn(&World) -> bool> {
    Box::new(move |world| so(world, site))
}

/// The present state of each live member.
fn show(world: &World) -> String {
    let mut text = String::new();
    for site in world.sites().filter(|site| world.is_alive(*site)) {
        let view = world.view(site).map(|view| {
            let there = |member: &elderlock::protocol::ViewMember| {
                let here = world.site_of(member.info.process).filter(|_| !member.ghost);
                here.map_or_else(|| "(ghost)".to_string(), |site| format!("m{site}"))
            };
            view.members.iter().map(there).collect::<Vec<_>>().join(" ")
        });
        let lease = if world.is_ready(site) { "" } else { ", without a lease" };
        text += &format!("m{site} sees {}{lease}\n", view.unwrap_or_else(|| "no view".to_string()));
    }
    text
}

impl Runner for ScriptRunner<'_> {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        // A panic of the core is a violation.
        let said = match catch_unwind(AssertUnwindSafe(|| self.command(&command.name, &mut args))) {
            Ok(said) => said?,
            Err(panic) => {
                self.world().fail_with(panic.as_ref());
                String::new()
            }
        };
        let news = self.world.as_ref().map(|world| self.transcript.news(world)).unwrap_or_default();
        Ok(news + &said)
    }

    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        self.world().read_again();
        Ok(())
    }
}
