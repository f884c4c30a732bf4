"""The dashboards, one a file."""

from deploy.grafana.boards.capacity import CAPACITY
from deploy.grafana.boards.fleet import FLEET
from deploy.grafana.boards.overview import OVERVIEW
from deploy.grafana.boards.speculation import SPECULATION
from deploy.grafana.boards.tenants import TENANTS

BOARDS = (OVERVIEW, SPECULATION, CAPACITY, FLEET, TENANTS)
