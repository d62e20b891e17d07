"""Boards → the JSON that Grafana reads; the only module that imports Grafana's SDK."""

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

from ops.words import Board, Panel, Query

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "solar"
#: The first colours of Grafana's palette: a band has the colour of its line.
COLOURS = ("green", "semi-dark-yellow")
BAND_OPACITY = 20  # in percent

_PanelBuilder = timeseries.Panel | stat.Panel | statetimeline.Panel


def dump(board: Board) -> str:
    """The dashboard as text; the same board always gives the same text."""
    built = json.loads(json.dumps(_built(board), cls=JSONEncoder))
    for variable in built["templating"]["list"]:
        for name in ("auto", "auto_min", "auto_count"):  # fields of intervals that the SDK adds
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
        .link(_links())
    )
    number = 0
    for row in board.rows:
        number += 1
        built.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            built.with_panel(_panel(panel).id(number))
    return built.build()


def _links() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("SOLAR").type(models.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).as_dropdown(False).include_vars(True).keep_time(True)


def _variables(board: Board) -> list[Builder[models.VariableModel]]:
    variables: list[Builder[models.VariableModel]] = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _label_values("model", "Model", "label_values(solar_version, model)"),
        _label_values("instance", "Instance", "label_values(solar_store_up, instance)"),
    ]
    if board.windows:
        variables.append(_window_choice(board.windows))
    return variables


def _label_values(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable that selects some or all values of a label."""
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


def _window_choice(windows: tuple[str, ...]) -> dashboard.CustomVariable:
    default = "1h"
    options = [models.VariableOption(one == default, one, one) for one in windows]
    return (
        dashboard.CustomVariable("window")
        .label("Window")
        .values(",".join(windows))
        .options(options)
        .current(models.VariableOption(True, default, default))
    )


def _panel(panel: Panel) -> _PanelBuilder:
    builder: _PanelBuilder = _BUILDERS[panel.kind]()
    builder.title(panel.title).description(panel.description).unit(panel.unit)
    builder.datasource(SOURCE).height(panel.height).span(panel.width)
    if panel.decimals is not None:
        builder.decimals(panel.decimals)
    if panel.minimum is not None:
        builder.min(panel.minimum)
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if panel.logarithmic and isinstance(builder, timeseries.Panel):
        scale = common.ScaleDistributionConfig().type(kinds.ScaleDistribution.LOG)
        builder.scale_distribution(scale.log(10))
    for at, query in enumerate(panel.queries):
        target = _target(query.expr, query.legend, chr(ord("A") + at))
        builder.with_target(target.instant() if panel.kind == "number" else target.range())
    for at, query in enumerate(panel.queries):
        if query.error:
            _add_band(builder, query, chr(ord("A") + at), COLOURS[at])
    return builder


def _target(expr: str, legend: str, name: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(expr).legend_format(legend)
    return target.ref_id(name).datasource(SOURCE)


def _add_band(builder: _PanelBuilder, query: Query, name: str, colour: str) -> None:
    """Fill the space between two invisible lines, one standard error below and above a line."""
    lower, upper = (f"{name} {sign} standard error" for sign in "−+")
    hidden = {
        "custom.lineWidth": 0,
        "custom.fillOpacity": 0,
        "custom.hideFrom": {"legend": True, "tooltip": True, "viz": False},
        "color": {"mode": "fixed", "fixedColor": colour},
    }
    filled = {**hidden, "custom.fillOpacity": BAND_OPACITY, "custom.fillBelowTo": lower}
    below, above = query.bounds()
    for expr, legend, side, looks in (
        (below, lower, "below", hidden),
        (above, upper, "above", filled),
    ):
        builder.with_target(_target(expr, legend, f"{name}-{side}").range())
        values = [models.DynamicConfigValue(*one) for one in looks.items()]
        builder.override_by_query(f"{name}-{side}", values)


def _legend(shown: bool) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(shown)
    return legend.display_mode(kinds.LegendDisplayMode.LIST).placement(kinds.LegendPlacement.BOTTOM)


def _tooltip() -> common.VizTooltipOptions:
    tooltip = common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI)
    return tooltip.sort(kinds.SortOrder.DESCENDING)


def _lines() -> timeseries.Panel:
    builder = timeseries.Panel().legend(_legend(True)).tooltip(_tooltip())
    return builder.fill_opacity(5).line_width(1).span_nulls(True)


def _stacked() -> timeseries.Panel:
    stacking = common.StackingConfig().mode(kinds.StackingMode.NORMAL)
    return _lines().stacking(stacking).fill_opacity(30).span_nulls(False)


def _number() -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    builder = stat.Panel().reduce_options(last).graph_mode(kinds.BigValueGraphMode.NONE)
    return builder.no_value("–")


def _timeline(*steps: tuple[float | None, str]) -> statetimeline.Panel:
    """A line of states; each step is a least value and its colour."""
    colours = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE)
    colours.steps([models.Threshold(*step) for step in steps])
    by_value = dashboard.FieldColor().mode(models.FieldColorModeId.THRESHOLDS)
    builder = statetimeline.Panel().thresholds(colours).color_scheme(by_value)
    builder.legend(_legend(False)).tooltip(_tooltip()).row_height(0.8)
    return builder.show_value(kinds.VisibilityMode.AUTO)


def _verdicts() -> statetimeline.Panel:
    builder = _timeline((None, "orange"), (0.0, "text"), (1.0, "blue"))
    texts = {"-1": "challenger", "0": "undecided", "1": "champion"}
    found = {value: models.ValueMappingResult(text) for value, text in texts.items()}
    return builder.mappings([models.ValueMap(found)])


_BUILDERS: dict[str, Callable[[], _PanelBuilder]] = {
    "lines": _lines,
    "stacked": _stacked,
    "number": _number,
    "states": lambda: _timeline((None, "red"), (1.0, "green")),
    "phases": lambda: _timeline((None, "text"), (1.0, "blue")),
    "verdicts": _verdicts,
}
