from tracing_fixtures import *  # noqa: F403
