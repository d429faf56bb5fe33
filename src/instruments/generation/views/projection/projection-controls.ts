import type { IRunSource } from '../../../../store/source';
import type { ITensorShape } from '../../../../store/tensor-data';
import { type Control, selectControl } from '../../../../views/shared/control';
import { chip, numberField } from '../../../../views/shared/table';
import { layerName } from '../../../../views/shared/layers';
import { placeNear } from '../../../../views/shared/places';
import { flagControls } from '../../../../views/shared/tensor-controls';
import type { Translate } from '../../../../views/shared/translate';
import type { ProjectionChoice } from './projection-reader';
import { countWords } from './projection-words';

/** What the controls are made of. */
export interface IProjectionFacts {
  readonly source: Pick<IRunSource, 'hello' | 'name'>;
  readonly options: ProjectionChoice;
  readonly shape: ITensorShape;
  /** Tokens of the group. */
  readonly grouped: number;
  readonly choose: (options: Partial<ProjectionChoice>) => void;
  readonly t: Translate;
}

/** The toolbar of a projection. */
export function projectionControls(facts: IProjectionFacts): Control[] {
  const { choose, options, source, t } = facts;
  return [
    { kind: 'name', id: 'run', text: source.name },
    ...tensorControls(facts),
    selectControl(
      'method',
      t('Method'),
      options.method,
      { pca: t('components (PCA)'), umap: t('UMAP') },
      method => choose({ method })
    ),
    selectControl(
      'color',
      t('Colour'),
      options.color,
      { prompt: t('prompt'), token: t('token'), position: t('position'), step: t('step') },
      color => choose({ color })
    ),
    selectControl(
      'standardise',
      t('Features'),
      String(options.standardise),
      { false: t('as they are'), true: t('standardised') },
      value => choose({ standardise: value === 'true' })
    ),
    selectControl(
      'keep_axes',
      t('Axes'),
      String(options.keep_axes),
      { true: t('kept between layers'), false: t('of each layer') },
      value => choose({ keep_axes: value === 'true' })
    ),
    {
      kind: 'text',
      id: 'generations',
      label: t('Generations'),
      value: options.generations,
      suggestions: ['newest'],
      valid: text => /^(newest|\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*)$/.test(text) && text.length <= 500,
      change: generations => choose({ generations })
    },
    ...methodControls(facts),
    ...groupChip(facts)
  ];
}

function tensorControls({ choose, options, shape, source, t }: IProjectionFacts): Control[] {
  const { flag, layer, part } = options;
  const flags = (source.hello?.flags ?? []).filter(
    ({ axes, name }) => name === flag || (axes[0] === 'position' && axes.length > 1)
  );
  const { layers } = shape;
  return [
    ...flagControls(flags, { flag, part }, shape, choose, t),
    ...(layers.length < 2
      ? []
      : [
          {
            kind: 'steps',
            id: 'layer',
            label: t('Layer'),
            followLabel: '',
            count: layers.length,
            index: Math.max(0, placeNear(layers, layer)),
            text: layerName(layer, t),
            following: false,
            canFollow: false,
            change: (index: number | null) => choose({ layer: layers[index ?? 0] ?? layer })
          } as const
        ])
  ];
}

function methodControls({ choose, options, t }: IProjectionFacts): Control[] {
  const number = (
    name: 'across' | 'neighbors' | 'seed' | 'up',
    label: string,
    least: number,
    most: number
  ): Control => numberField(name, label, options[name], [least, most], value => choose({ [name]: value }));
  return options.method === 'umap'
    ? [number('neighbors', t('Neighbours'), 2, 200), number('seed', t('Seed'), 0, 4_294_967_295)]
    : [number('across', t('Across: PC'), 1, 8), number('up', t('Up: PC'), 1, 8)];
}

function groupChip({ choose, grouped, options, t }: IProjectionFacts): Control[] {
  return options.group === ''
    ? []
    : [
        chip(
          'group',
          t('Group: %1', countWords(grouped, t)),
          t(
            'Chosen by a loop drawn with Shift, a box with Ctrl and Shift, or token by token with G. Let it go'
          ),
          () => choose({ group: '' })
        )
      ];
}
