//! The root: what runs under it, and who starts it again.
//!
//! Owns the shape of the tree. The guardian is a task, not an actor: it only restarts the root.

use std::sync::Arc;

use ractor::{Actor, Message, SpawnErr};

use crate::{
    actors::{
        adapter,
        approvals::ApprovalsActor,
        keeper::{self, KeeperActor},
        policy::PolicyActor,
        supervisor::Supervisor,
        tree::{ChildSpec, Tree},
        worker::{Publish, Worker},
    },
    adapters::ports::backoff,
    call::Call,
    context::Context,
    routes::Routes,
    stages::runner,
};

/// Root restarts in a row that end the process.
const ROOT_RESTARTS_MAX: u32 = 10;

/// Starts the tree and keeps its root up until the engine stops.
pub(crate) async fn start(context: &Arc<Context>, tree: &Arc<Tree>) -> Result<(), SpawnErr> {
    let (_, first) = Actor::spawn(None, root(context, tree), ()).await?;
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    drop(tokio::spawn(async move {
        let mut running = first;
        let mut tries = 0_u32;
        loop {
            drop(running.await);
            if context.node.is_stopping() {
                return;
            }
            tries = tries.saturating_add(1);
            if tries > ROOT_RESTARTS_MAX {
                return context.node.die("the root supervisor ended too often");
            }
            tracing::error!("the root supervisor ended and is started again");
            tokio::time::sleep(backoff(tries.saturating_sub(1))).await;
            match Actor::spawn(None, root(&context, &tree), ()).await {
                Ok((_, next)) => running = next,
                Err(error) => {
                    return context
                        .node
                        .die(format!("the root supervisor could not be started: {error}"));
                }
            }
        }
    }));
    Ok(())
}

fn root(context: &Arc<Context>, tree: &Arc<Tree>) -> Supervisor {
    let mut children = vec![
        single(context, tree, "root/policy", |context, tree| PolicyActor { context, tree }),
        single(context, tree, "root/identity", |context, tree| KeeperActor {
            context,
            tree,
            path: "root/identity",
            chores: keeper::identity_chores,
        }),
        single(context, tree, "root/approvals", |context, tree| ApprovalsActor { context, tree }),
        single(context, tree, "root/keeper", |context, tree| KeeperActor {
            context,
            tree,
            path: "root/keeper",
            chores: keeper::chores,
        }),
    ];
    children.push(nested(context, tree, "root/build", |c, t| {
        workers(c, t, "root/build", Routes::set_build, runner::build)
    }));
    children.push(nested(context, tree, "root/broker", |c, t| {
        workers(c, t, "root/broker", Routes::set_broker, runner::broker)
    }));
    children.push(nested(context, tree, "root/gate", |c, t| {
        workers(c, t, "root/gate", Routes::set_gate, runner::gate)
    }));
    children.push(nested(context, tree, "root/return", |c, t| {
        workers(c, t, "root/return", Routes::set_reply, runner::reply)
    }));
    children.push(nested(context, tree, "root/invoke", invoke_children));
    supervisor(context, tree, "root", children)
}

/// The invoke stage: its workers, and a supervisor for each adapter.
fn invoke_children(context: &Arc<Context>, tree: &Arc<Tree>) -> Vec<ChildSpec> {
    let mut children = workers(context, tree, "root/invoke", Routes::set_invoke, runner::invoke);
    children.extend(
        context.current.active().ports.all().map(|port| adapter::child(context, tree, port)),
    );
    children
}

/// What a worker does with a call.
type Take<S> = fn(&Arc<Context>, Call<S>);

fn workers<S: Send + Sync + std::fmt::Debug + 'static>(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    publish: Publish<S>,
    stage: Take<S>,
) -> Vec<ChildSpec> {
    (0..context.settings.stage_workers.max(1))
        .map(|number| {
            let path = format!("{path}/{number}");
            let (context, tree) = (Arc::clone(context), Arc::clone(tree));
            ChildSpec::new(path.clone(), move || Worker {
                context: Arc::clone(&context),
                tree: Arc::clone(&tree),
                path: path.clone(),
                number,
                publish,
                stage,
            })
        })
        .collect()
}

fn supervisor(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    children: Vec<ChildSpec>,
) -> Supervisor {
    Supervisor {
        context: Arc::clone(context),
        tree: Arc::clone(tree),
        path: path.to_owned(),
        children,
    }
}

fn single<A>(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &str,
    make: fn(Arc<Context>, Arc<Tree>) -> A,
) -> ChildSpec
where
    A: Actor<Arguments = ()>,
    A::Msg: Message,
{
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    ChildSpec::new(path.to_owned(), move || make(Arc::clone(&context), Arc::clone(&tree)))
}

fn nested(
    context: &Arc<Context>,
    tree: &Arc<Tree>,
    path: &'static str,
    children: fn(&Arc<Context>, &Arc<Tree>) -> Vec<ChildSpec>,
) -> ChildSpec {
    let (context, tree) = (Arc::clone(context), Arc::clone(tree));
    ChildSpec::new(path.to_owned(), move || {
        supervisor(&context, &tree, path, children(&context, &tree))
    })
}
