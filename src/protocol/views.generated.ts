// Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.

import type { Schema } from '@cfworker/json-schema';

/**
 * Options of a view. The same object is the Python widget's arguments, the saved state of a tab and a report's recipe.
 */
export type ViewOptions = HeatmapOptions | TrendOptions | ScalarsOptions | HistoryOptions | MomentsOptions;
/**
 * 'all' or ranges such as '1-4,7'.
 */
export type LayerRanges = string;
/**
 * Global rank whose rows are shown; null takes of each layer the lowest rank that has it, so that replicas never mix.
 */
export type RankChoice = number | null;
/**
 * backward shows the gradients of the same tensors. Python calls it pass_.
 */
export type PassChoice = 'forward' | 'backward';
/**
 * Inclusive first and last step; null is all.
 *
 * @minItems 2
 * @maxItems 2
 */
export type StepRange = [number, number] | null;
/**
 * Columns that make a group; none is the total. 'capture' is what the pattern's groups find in the name.
 */
export type MomentGroupBy = (
  | 'name'
  | 'layer'
  | 'stack'
  | 'family'
  | 'kind'
  | 'module_type'
  | 'item_type'
  | 'role'
  | 'expert'
  | 'rank'
  | 'stage'
  | 'capture'
)[];

/**
 * One flag as position × tile, one layer or small multiples, with a step slider.
 */
export interface HeatmapOptions {
  view: 'heatmap';
  /**
   * Trace point by name.
   */
  flag: string;
  /**
   * Named part (q, k, v …); null takes the first.
   */
  part?: string | null;
  layers?: LayerRanges;
  /**
   * Step to draw; null follows the newest.
   */
  step?: number | null;
  sample?: number;
  /**
   * Head, for tensors with a head axis.
   */
  head?: number;
  /**
   * One colour scale for all layers, or one each.
   */
  scale?: 'shared' | 'own';
  /**
   * log is symmetric about zero for signed values.
   */
  transform?: 'linear' | 'log';
  phase?: 'train' | 'eval' | 'generate';
  rank?: RankChoice;
  pass?: PassChoice;
}

/**
 * A statistic of one flag per layer over steps.
 */
export interface TrendOptions {
  view: 'trend';
  flag: string;
  part?: string | null;
  layers?: LayerRanges;
  /**
   * Over the finite traced values of a layer and step; nonfinite counts the others.
   */
  statistic?: 'mean' | 'std' | 'min' | 'max' | 'rms' | 'abs_mean' | 'nonfinite';
  kind?: 'lines' | 'heatmap';
  steps?: StepRange;
  transform?: 'linear' | 'log';
  phase?: 'train' | 'eval' | 'generate';
  rank?: RankChoice;
  pass?: PassChoice;
  /**
   * 'all' or ranges such as '0-15,31': which positions, counted from 0, enter the statistic. Tensors without a position axis enter whole.
   */
  positions?: string;
  /**
   * Which vector of a projection, counted from 0. Other tensors have none.
   */
  vector?: number;
  /**
   * Band about the mean, over positions and samples: one standard deviation, or a 95 % confidence interval. Only with the statistic mean.
   */
  interval?: 'none' | 'std' | 'ci95';
}

/**
 * Named scalars over steps or time.
 */
export interface ScalarsOptions {
  view: 'scalars';
  /**
   * Names to draw; null takes every name that has 'loss' in it, else all.
   */
  names?: string[] | null;
  steps?: StepRange;
  x?: 'step' | 'time';
  transform?: 'linear' | 'log';
  /**
   * Trailing mean over this many points; 0 draws the numbers as they are.
   */
  smoothing?: number;
}

/**
 * A statistic of one flag as layer × step, and below it the tensor of the chosen layer and step, with a slider over the steps.
 */
export interface HistoryOptions {
  view: 'history';
  /**
   * Trace point by name.
   */
  flag: string;
  part?: string | null;
  layers?: LayerRanges;
  /**
   * Layer whose tensor is drawn; null takes the first.
   */
  layer?: number | null;
  /**
   * Step whose tensor is drawn; null follows the newest.
   */
  step?: number | null;
  /**
   * Colour of the map, over the finite traced values of a layer and step.
   */
  statistic?: 'mean' | 'std' | 'min' | 'max' | 'rms' | 'abs_mean' | 'nonfinite';
  steps?: StepRange;
  sample?: number;
  head?: number;
  transform?: 'linear' | 'log';
  phase?: 'train' | 'eval' | 'generate';
  rank?: RankChoice;
  pass?: PassChoice;
}

/**
 * The explorer of the stream moments: any statistic, over any grouping, of one kind of tensor.
 */
export interface MomentsOptions {
  view: 'moments';
  /**
   * What was measured.
   */
  stat?: 'param' | 'grad' | 'activation' | 'dgrad' | 'residual' | 'residual_dgrad';
  /**
   * nonfinite counts NaN and infinite values.
   */
  statistic?:
    | 'l2'
    | 'rms'
    | 'mean'
    | 'variance'
    | 'std'
    | 'skewness'
    | 'kurtosis'
    | 'excess_kurtosis'
    | 'min'
    | 'max'
    | 'nonfinite';
  /**
   * overview: total, largest moves and families. lines: each group over steps. layers: each layer at one step. layer_map and item_map: layer or item type × step. tensors: single tensors over steps. table: the rows.
   */
  kind?: 'overview' | 'lines' | 'layers' | 'layer_map' | 'item_map' | 'tensors' | 'table';
  by?: MomentGroupBy;
  /**
   * Regular expression whose groups are the column 'capture'; a name that it does not match is left out.
   */
  pattern?: string | null;
  where?: MomentFilter;
  steps?: StepRange;
  /**
   * Step of the layer chart; null follows the newest.
   */
  step?: number | null;
  /**
   * How the layer chart is drawn.
   */
  marks?: 'lines' | 'bars';
  x?: 'step' | 'samples';
  /**
   * raw; divided by the first value of the series; minus it; or the change from it in per cent. The first value is that of the whole run.
   */
  show?: 'raw' | 'relative' | 'delta' | 'percent';
  /**
   * grad_to_param: of gradients over that of parameters, by the same names. gain: output over input of a module (of dgrads input over output: the way the gradient goes).
   */
  ratio?: 'none' | 'grad_to_param' | 'gain';
  transform?: 'linear' | 'log';
  /**
   * Trailing mean over this many points; 0 draws the numbers as they are.
   */
  smoothing?: number;
  /**
   * Let inputs and outputs of modules enter the same group, where the same values may count twice.
   */
  mixed?: boolean;
  /**
   * At most so many lines: those with the largest values. What is left out is said.
   */
  series?: number;
  /**
   * Ids of other runs to compare with.
   */
  runs?: string[];
  /**
   * Draw the runs over one another, or what each of the others is minus, or over, this one.
   */
  compare?: 'overlay' | 'difference' | 'ratio';
  /**
   * Of the table: new columns as expressions of arquero, such as 'share = d.value / op.max(d.value)', several with ';' between. Functions of several rows go over the rows of one group.
   */
  derive?: string | null;
  /**
   * Of the table: which rows it shows, as an expression of arquero, such as 'd.value > op.mean(d.value)'.
   */
  filter?: string | null;
}

/**
 * Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match.
 */
export type MomentFilter = {
  /**
   * Regular expression that is found somewhere in the name.
   */
  name?: string;
  layer?: LayerRanges;
  expert?: LayerRanges;
  rank?: LayerRanges;
  stage?: LayerRanges;
  stack?: string[];
  family?: string[];
  kind?: string[];
  module_type?: string[];
  item_type?: string[];
  role?: ('input' | 'output')[];
};

/** protocol/views.schema.json, as a validator takes it. */
export const VIEWS_SCHEMA: Schema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  $id: 'megalens:views.v1',
  title: 'ViewOptions',
  description:
    "Options of a view. The same object is the Python widget's arguments, the saved state of a tab and a report's recipe.",
  oneOf: [
    { $ref: '#/$defs/Heatmap' },
    { $ref: '#/$defs/Trend' },
    { $ref: '#/$defs/Scalars' },
    { $ref: '#/$defs/History' },
    { $ref: '#/$defs/Moments' }
  ],
  $defs: {
    Layers: {
      title: 'LayerRanges',
      type: 'string',
      maxLength: 500,
      pattern: '^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$',
      description: "'all' or ranges such as '1-4,7'."
    },
    StepRange: {
      title: 'StepRange',
      type: ['array', 'null'],
      items: { type: 'integer' },
      minItems: 2,
      maxItems: 2,
      description: 'Inclusive first and last step; null is all.'
    },
    Rank: {
      title: 'RankChoice',
      type: ['integer', 'null'],
      minimum: 0,
      description:
        'Global rank whose rows are shown; null takes of each layer the lowest rank that has it, so that replicas never mix.'
    },
    Pass: {
      title: 'PassChoice',
      enum: ['forward', 'backward'],
      description: 'backward shows the gradients of the same tensors. Python calls it pass_.'
    },
    Heatmap: {
      title: 'HeatmapOptions',
      description: 'One flag as position × tile, one layer or small multiples, with a step slider.',
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'heatmap' },
        flag: { type: 'string', description: 'Trace point by name.' },
        part: {
          type: ['string', 'null'],
          default: null,
          description: 'Named part (q, k, v …); null takes the first.'
        },
        layers: {
          $ref: '#/$defs/Layers',
          default: '1',
          description: 'Layers to draw; more than one makes small multiples.'
        },
        step: {
          type: ['integer', 'null'],
          default: null,
          description: 'Step to draw; null follows the newest.'
        },
        sample: { type: 'integer', minimum: 0, default: 0 },
        head: { type: 'integer', minimum: 0, default: 0, description: 'Head, for tensors with a head axis.' },
        scale: {
          enum: ['shared', 'own'],
          default: 'shared',
          description: 'One colour scale for all layers, or one each.'
        },
        transform: {
          enum: ['linear', 'log'],
          default: 'linear',
          description: 'log is symmetric about zero for signed values.'
        },
        phase: { enum: ['train', 'eval', 'generate'], default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' }
      }
    },
    Trend: {
      title: 'TrendOptions',
      description: 'A statistic of one flag per layer over steps.',
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'trend' },
        flag: { type: 'string' },
        part: { type: ['string', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: 'all' },
        statistic: {
          enum: ['mean', 'std', 'min', 'max', 'rms', 'abs_mean', 'nonfinite'],
          default: 'rms',
          description: 'Over the finite traced values of a layer and step; nonfinite counts the others.'
        },
        kind: { enum: ['lines', 'heatmap'], default: 'lines' },
        steps: { $ref: '#/$defs/StepRange', default: null },
        transform: { enum: ['linear', 'log'], default: 'linear' },
        phase: { enum: ['train', 'eval', 'generate'], default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' },
        positions: {
          type: 'string',
          maxLength: 500,
          pattern: '^(all|[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$',
          default: 'all',
          description:
            "'all' or ranges such as '0-15,31': which positions, counted from 0, enter the statistic. Tensors without a position axis enter whole."
        },
        vector: {
          type: 'integer',
          minimum: 0,
          default: 0,
          description: 'Which vector of a projection, counted from 0. Other tensors have none.'
        },
        interval: {
          enum: ['none', 'std', 'ci95'],
          default: 'none',
          description:
            'Band about the mean, over positions and samples: one standard deviation, or a 95 % confidence interval. Only with the statistic mean.'
        }
      }
    },
    History: {
      title: 'HistoryOptions',
      description:
        'A statistic of one flag as layer × step, and below it the tensor of the chosen layer and step, with a slider over the steps.',
      type: 'object',
      additionalProperties: false,
      required: ['view', 'flag'],
      properties: {
        view: { const: 'history' },
        flag: { type: 'string', description: 'Trace point by name.' },
        part: { type: ['string', 'null'], default: null },
        layers: { $ref: '#/$defs/Layers', default: 'all' },
        layer: {
          type: ['integer', 'null'],
          minimum: 0,
          default: null,
          description: 'Layer whose tensor is drawn; null takes the first.'
        },
        step: {
          type: ['integer', 'null'],
          default: null,
          description: 'Step whose tensor is drawn; null follows the newest.'
        },
        statistic: {
          enum: ['mean', 'std', 'min', 'max', 'rms', 'abs_mean', 'nonfinite'],
          default: 'rms',
          description: 'Colour of the map, over the finite traced values of a layer and step.'
        },
        steps: { $ref: '#/$defs/StepRange', default: null },
        sample: { type: 'integer', minimum: 0, default: 0 },
        head: { type: 'integer', minimum: 0, default: 0 },
        transform: { enum: ['linear', 'log'], default: 'linear' },
        phase: { enum: ['train', 'eval', 'generate'], default: 'train' },
        rank: { $ref: '#/$defs/Rank', default: null },
        pass: { $ref: '#/$defs/Pass', default: 'forward' }
      }
    },
    Where: {
      title: 'MomentFilter',
      description:
        "Which tensors take part. Absent members match everything; numbers are texts of ranges such as '0-3,7', words are lists of which one must match.",
      type: 'object',
      additionalProperties: false,
      properties: {
        name: {
          type: 'string',
          maxLength: 500,
          description: 'Regular expression that is found somewhere in the name.'
        },
        layer: { $ref: '#/$defs/Layers' },
        expert: { $ref: '#/$defs/Layers' },
        rank: { $ref: '#/$defs/Layers' },
        stage: { $ref: '#/$defs/Layers' },
        stack: { type: 'array', items: { type: 'string' } },
        family: { type: 'array', items: { type: 'string' } },
        kind: { type: 'array', items: { type: 'string' } },
        module_type: { type: 'array', items: { type: 'string' } },
        item_type: { type: 'array', items: { type: 'string' } },
        role: { type: 'array', items: { enum: ['input', 'output'] } }
      }
    },
    GroupBy: {
      title: 'MomentGroupBy',
      description:
        "Columns that make a group; none is the total. 'capture' is what the pattern's groups find in the name.",
      type: 'array',
      maxItems: 4,
      items: {
        enum: [
          'name',
          'layer',
          'stack',
          'family',
          'kind',
          'module_type',
          'item_type',
          'role',
          'expert',
          'rank',
          'stage',
          'capture'
        ]
      },
      allOf: [
        { contains: { const: 'name' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'layer' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'stack' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'family' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'kind' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'module_type' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'item_type' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'role' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'expert' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'rank' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'stage' }, minContains: 0, maxContains: 1 },
        { contains: { const: 'capture' }, minContains: 0, maxContains: 1 }
      ]
    },
    Moments: {
      title: 'MomentsOptions',
      description:
        'The explorer of the stream moments: any statistic, over any grouping, of one kind of tensor.',
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'moments' },
        stat: {
          enum: ['param', 'grad', 'activation', 'dgrad', 'residual', 'residual_dgrad'],
          default: 'grad',
          description: 'What was measured.'
        },
        statistic: {
          enum: [
            'l2',
            'rms',
            'mean',
            'variance',
            'std',
            'skewness',
            'kurtosis',
            'excess_kurtosis',
            'min',
            'max',
            'nonfinite'
          ],
          default: 'l2',
          description: 'nonfinite counts NaN and infinite values.'
        },
        kind: {
          enum: ['overview', 'lines', 'layers', 'layer_map', 'item_map', 'tensors', 'table'],
          default: 'lines',
          description:
            'overview: total, largest moves and families. lines: each group over steps. layers: each layer at one step. layer_map and item_map: layer or item type × step. tensors: single tensors over steps. table: the rows.'
        },
        by: { $ref: '#/$defs/GroupBy', default: ['layer'] },
        pattern: {
          type: ['string', 'null'],
          maxLength: 500,
          default: null,
          description:
            "Regular expression whose groups are the column 'capture'; a name that it does not match is left out."
        },
        where: { $ref: '#/$defs/Where', default: {} },
        steps: { $ref: '#/$defs/StepRange', default: null },
        step: {
          type: ['integer', 'null'],
          default: null,
          description: 'Step of the layer chart; null follows the newest.'
        },
        marks: { enum: ['lines', 'bars'], default: 'lines', description: 'How the layer chart is drawn.' },
        x: { enum: ['step', 'samples'], default: 'step' },
        show: {
          enum: ['raw', 'relative', 'delta', 'percent'],
          default: 'raw',
          description:
            'raw; divided by the first value of the series; minus it; or the change from it in per cent. The first value is that of the whole run.'
        },
        ratio: {
          enum: ['none', 'grad_to_param', 'gain'],
          default: 'none',
          description:
            'grad_to_param: of gradients over that of parameters, by the same names. gain: output over input of a module (of dgrads input over output: the way the gradient goes).'
        },
        transform: { enum: ['linear', 'log'], default: 'linear' },
        smoothing: {
          type: 'integer',
          minimum: 0,
          default: 0,
          description: 'Trailing mean over this many points; 0 draws the numbers as they are.'
        },
        mixed: {
          type: 'boolean',
          default: false,
          description:
            'Let inputs and outputs of modules enter the same group, where the same values may count twice.'
        },
        series: {
          type: 'integer',
          minimum: 1,
          maximum: 500,
          default: 40,
          description: 'At most so many lines: those with the largest values. What is left out is said.'
        },
        runs: {
          type: 'array',
          items: { type: 'string' },
          maxItems: 8,
          default: [],
          description: 'Ids of other runs to compare with.'
        },
        compare: {
          enum: ['overlay', 'difference', 'ratio'],
          default: 'overlay',
          description:
            'Draw the runs over one another, or what each of the others is minus, or over, this one.'
        },
        derive: {
          type: ['string', 'null'],
          maxLength: 500,
          default: null,
          description:
            "Of the table: new columns as expressions of arquero, such as 'share = d.value / op.max(d.value)', several with ';' between. Functions of several rows go over the rows of one group."
        },
        filter: {
          type: ['string', 'null'],
          maxLength: 500,
          default: null,
          description:
            "Of the table: which rows it shows, as an expression of arquero, such as 'd.value > op.mean(d.value)'."
        }
      }
    },
    Scalars: {
      title: 'ScalarsOptions',
      description: 'Named scalars over steps or time.',
      type: 'object',
      additionalProperties: false,
      required: ['view'],
      properties: {
        view: { const: 'scalars' },
        names: {
          type: ['array', 'null'],
          items: { type: 'string' },
          default: null,
          description: "Names to draw; null takes every name that has 'loss' in it, else all."
        },
        steps: { $ref: '#/$defs/StepRange', default: null },
        x: { enum: ['step', 'time'], default: 'step' },
        transform: { enum: ['linear', 'log'], default: 'linear' },
        smoothing: {
          type: 'integer',
          minimum: 0,
          default: 0,
          description: 'Trailing mean over this many points; 0 draws the numbers as they are.'
        }
      }
    }
  }
};
