from server_fixtures import *  # noqa: F403
