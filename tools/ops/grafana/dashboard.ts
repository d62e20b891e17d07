// The type of SOLAR's dashboards: Grafana's types, with the options of each panel kind from its plugin.
// @grafana/schema has no type for a Prometheus query, so its fields are listed here.
import type { DataQuery } from '@grafana/schema';
import type {
  Dashboard,
  DataSourceRef,
  FieldConfig,
  FieldConfigSource,
  Panel,
  RowPanel,
} from '@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen.d.ts';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts';
import type * as timeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts';
import type * as series from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts';

interface Query extends Omit<DataQuery, 'datasource'> {
  datasource: DataSourceRef;
  expr: string;
  legendFormat: string;
  instant: boolean;
  range: boolean;
}

interface Fields<Custom> extends Omit<FieldConfigSource, 'defaults'> {
  defaults: Omit<FieldConfig, 'custom' | 'unit'> & { custom?: Custom; unit: string };
}

interface PanelOf<Kind, Options, Custom>
  extends Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets' | 'description'> {
  type: Kind;
  description: string;
  options: Options;
  fieldConfig: Fields<Custom>;
  targets: Query[];
}

export interface SolarDashboard extends Omit<Dashboard, 'panels'> {
  panels: Array<
    | RowPanel
    | PanelOf<'timeseries', series.Options, series.FieldConfig>
    | PanelOf<'stat', stat.Options, Record<string, never>>
    | PanelOf<'state-timeline', timeline.Options, timeline.FieldConfig>
  >;
}
