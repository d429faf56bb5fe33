import type { ISchema } from './schema-check';
import VIEWS_SCHEMA from '#protocol/views.schema.json';

/** By kit, a view of ours that it draws as well, and which of its options the kit understands. */
const OF = {
  lines: [
    'Scalars',
    ['align', 'baseline', 'compare', 'hidden', 'ignore_outliers', 'runs', 'smoothing', 'steps', 'transform']
  ],
  matrix: ['Trend', ['color_range', 'steps', 'transform']],
  lanes: ['Timeline', ['hidden', 'steps']],
  points: ['Scalars', ['hidden', 'steps']],
  text: ['Trend', ['color_range', 'steps', 'transform']]
} as const;

export type KitName = keyof typeof OF;

/** The options that a kit understands, with a view's own: `options` of its descriptor. */
export function kitOptions(kit: KitName, own: Readonly<Record<string, ISchema>> = {}): ISchema {
  const { $defs = {} } = VIEWS_SCHEMA;
  const [view, names] = OF[kit];
  const known = $defs[view]?.properties ?? {};
  const shared = names.flatMap(name => (name in known ? [[name, known[name] ?? true] as const] : []));
  return {
    type: 'object',
    additionalProperties: false,
    properties: { ...Object.fromEntries(shared), ...own },
    $defs
  };
}
