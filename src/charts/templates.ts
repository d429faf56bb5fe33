import alarmMarks from '#protocol/charts/alarm-marks.vl.json';
import heatmap from '#protocol/charts/heatmap.vl.json';
import linePanels from '#protocol/charts/line-panels.vl.json';
import lines from '#protocol/charts/lines.vl.json';
import momentMap from '#protocol/charts/moment-map.vl.json';
import pipeline from '#protocol/charts/pipeline.vl.json';
import points from '#protocol/charts/points.vl.json';
import timeline from '#protocol/charts/timeline.vl.json';
import tokenMap from '#protocol/charts/token-map.vl.json';
import tokens from '#protocol/charts/tokens.vl.json';
import trendHeatmap from '#protocol/charts/trend-heatmap.vl.json';

/** Vega-Lite templates by name. Not to be changed: copy before filling. */
export const TEMPLATES = {
  'alarm-marks': alarmMarks,
  heatmap,
  'line-panels': linePanels,
  lines,
  'moment-map': momentMap,
  pipeline,
  points,
  timeline,
  'token-map': tokenMap,
  tokens,
  'trend-heatmap': trendHeatmap
} as const;

export type TemplateName = keyof typeof TEMPLATES;
