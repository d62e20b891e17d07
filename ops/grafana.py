"""Boards → the JSON that Grafana reads. The only module that knows Grafana's SDK."""

import json
from collections.abc import Callable

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models

from ops.words import Board, Panel

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT = 8
TAG = "solar"

_Drawn = timeseries.Panel | stat.Panel | statetimeline.Panel


def dump(board: Board) -> str:
    """The dashboard as text, always the same for the same board."""
    built = json.loads(json.dumps(_built(board), cls=JSONEncoder))
    for variable in built["templating"]["list"]:
        for name in ("auto", "auto_min", "auto_count"):  # the SDK gives all what intervals have
            del variable[name]
    return json.dumps(built, indent=1, ensure_ascii=False) + "\n"


def _built(board: Board) -> models.Dashboard:
    built = (
        dashboard.Dashboard(board.title)
        .uid(f"solar-{board.name}")
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .time("now-6h", "now")
        .refresh("30s")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .variables(_variables(board))
        .link(_others())
    )
    number = 0
    for row in board.rows:
        number += 1
        built.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built.with_panel(_panel(panel).id(number))
    return built.build()


def _others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("SOLAR").type(models.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).as_dropdown(False).include_vars(True).keep_time(True)


def _variables(board: Board) -> list[Builder[models.VariableModel]]:
    found: list[Builder[models.VariableModel]] = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _chosen("model", "Model", "label_values(solar_version, model)"),
        _chosen("instance", "Instance", "label_values(solar_store_up, instance)"),
    ]
    if board.windows:
        found.append(_window(board.windows))
    return found


def _chosen(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Some or all of the values that a label has."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _window(windows: tuple[str, ...]) -> dashboard.CustomVariable:
    first = "1h"
    options = [models.VariableOption(one == first, one, one) for one in windows]
    return (
        dashboard.CustomVariable("window")
        .label("Window")
        .values(",".join(windows))
        .options(options)
        .current(models.VariableOption(True, first, first))
    )


def _panel(panel: Panel) -> _Drawn:
    drawn: _Drawn = _DRAWN[panel.kind]()
    drawn.title(panel.title).description(panel.description).unit(panel.unit)
    drawn.datasource(SOURCE).height(HEIGHT).span(panel.width)
    if panel.decimals is not None:
        drawn.decimals(panel.decimals)
    if panel.least is not None:
        drawn.min(panel.least)
    if panel.most is not None:
        drawn.max(panel.most)
    for at, query in enumerate(panel.queries):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
        target.ref_id(chr(ord("A") + at)).datasource(SOURCE)
        drawn.with_target(target.instant() if panel.kind == "number" else target.range())
    return drawn


def _legend(shown: bool) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(shown)
    return legend.display_mode(kinds.LegendDisplayMode.LIST).placement(kinds.LegendPlacement.BOTTOM)


def _tooltip() -> common.VizTooltipOptions:
    tooltip = common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI)
    return tooltip.sort(kinds.SortOrder.DESCENDING)


def _lines() -> timeseries.Panel:
    drawn = timeseries.Panel().legend(_legend(True)).tooltip(_tooltip())
    return drawn.fill_opacity(5).line_width(1)


def _stacked() -> timeseries.Panel:
    stacking = common.StackingConfig().mode(kinds.StackingMode.NORMAL)
    return _lines().stacking(stacking).fill_opacity(30)


def _number() -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).graph_mode(kinds.BigValueGraphMode.NONE)


def _timeline(no: str, yes: str) -> statetimeline.Panel:
    colours = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE)
    colours.steps([models.Threshold(None, no), models.Threshold(1.0, yes)])
    by_value = dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
    drawn = statetimeline.Panel().thresholds(colours).color_scheme(by_value)
    drawn.legend(_legend(False)).tooltip(_tooltip()).row_height(0.8)
    return drawn.show_value(kinds.VisibilityMode.AUTO)


_DRAWN: dict[str, Callable[[], _Drawn]] = {
    "lines": _lines,
    "stacked": _stacked,
    "number": _number,
    "states": lambda: _timeline("red", "green"),
    "phases": lambda: _timeline("text", "blue"),
}
