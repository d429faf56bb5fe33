import { formatInteger } from '../../../../charts';
import { own } from '../../../../protocol/own';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import { isUnderWay, type IGeneration } from '../../store/generations';
import type { IRunSource } from '../../../../store/source';
import { chosenLayers, layerName, layerWords } from '../../../../views/shared/layers';
import {
  again,
  emptyFlag,
  emptyState,
  nothingYet,
  snippetState,
  type IState,
  type IStateActions
} from '../../../../views/shared/states';
import type { Translate } from '../../../../views/shared/translate';
import { ATTENTION, type IAttentionFound } from './attention-reader';

/** What writes a text with its attention. */
const SNIPPET = 'lab.generate("…", attention=True)';

type Options = Required<AttentionOptions>;

/** What states act on. */
export interface IAttentionActions {
  readonly source: IRunSource;
  readonly actions: IStateActions;
  choose(options: Partial<Options>): void;
  readonly t: Translate;
}

/** Why there is no attention to draw. */
export async function noAttention(
  found: Pick<IAttentionFound, 'generation' | 'layers' | 'mixed' | 'offered'>,
  options: Options,
  { source, actions, choose, t }: IAttentionActions
): Promise<IState> {
  const { hello } = source;
  const refused = hello?.generation?.no_attention;
  if (refused !== undefined) {
    return nothingYet(t('This model gives no attention probabilities: %1', refused), actions, t);
  }
  const { generation, layers, mixed, offered } = found;
  if (mixed !== null) {
    return noKeys(mixed, source, actions, t);
  }
  if (
    generation === undefined &&
    offered.length === 0 &&
    (hello === null || hello.generation === undefined)
  ) {
    return emptyFlag(source, ATTENTION, hello?.phase ?? 'train', actions, t);
  }
  if (layers.length > 0 && chosenLayers(options.layers, layers).length === 0) {
    return noLayer(options.layers, layers, choose, t);
  }
  if (options.step !== null) {
    const back = { label: t('Show what was generated'), run: () => choose({ step: null }) };
    return {
      kind: 'empty',
      sentence: t('No attention was traced of this training.'),
      action: back,
      more: [again(actions, t)]
    };
  }
  if (generation === undefined) {
    const sentence =
      options.generation === null
        ? t('No attention was traced. In a cell:')
        : t('There is no generation %1. In a cell:', formatInteger(options.generation));
    return snippetState(sentence, SNIPPET, actions, t);
  }
  const number = formatInteger(generation.generation);
  if (generation.request?.attention === true) {
    const sentence = isUnderWay(generation)
      ? t('No attention of generation %1 has arrived yet.', number)
      : t('No attention of generation %1 is here. %2', number, generation.message).trim();
    return nothingYet(sentence, actions, t);
  }
  const write = writeAgain(source, generation, choose, t);
  const sentence = t('No attention was traced in generation %1. In a cell:', number);
  return snippetState(sentence, SNIPPET, actions, t, write ? [write] : []);
}

/** That keys were mixed, and what keeps them apart. */
function noKeys(mixed: string, source: IRunSource, actions: IStateActions, t: Translate): IState {
  const { hello, connection } = source;
  const sentence = t(
    'Attention was kept as %1, which mixes keys: NoOp keeps all of them apart, Peaks the largest of blocks.',
    mixed
  );
  const setting = own(hello?.config.flags, ATTENTION);
  const isOffered = hello?.compressors.some(({ name }) => name === 'Peaks') === true;
  if (connection.kind !== 'live' || !setting || !isOffered) {
    return nothingYet(sentence, actions, t);
  }
  const change = async (): Promise<void> => {
    await source.configure({ flags: { [ATTENTION]: { ...setting, compressor: { name: 'Peaks' } } } });
  };
  return {
    kind: 'empty',
    sentence,
    action: { label: t('Keep the largest of blocks'), run: change },
    more: [again(actions, t)]
  };
}

/** Why a choice of layers leaves nothing to draw. */
function noLayer(
  wished: string,
  layers: readonly number[],
  choose: IAttentionActions['choose'],
  t: Translate
): IState {
  const [first = 0] = layers;
  const sentence = t('There is no attention of layers %1 here, but of %2.', wished, layerWords(layers));
  return emptyState(sentence, t('Show %1', layerName(first, t)), () => choose({ layers: String(first) }));
}

/** Why a choice of heads leaves nothing to draw. */
export function noHead(
  wished: string,
  heads: number,
  choose: IAttentionActions['choose'],
  t: Translate
): IState {
  return emptyState(
    t('There are no heads %1: a layer has %2, counted from 0.', wished, formatInteger(heads)),
    t('Show all heads'),
    () => choose({ heads: 'all' })
  );
}

/** Have the same text written with its attention; null where nobody can be asked. */
function writeAgain(
  source: IRunSource,
  { request }: IGeneration,
  choose: IAttentionActions['choose'],
  t: Translate
): IState['action'] | null {
  return source.generate && request
    ? {
        label: t('Write it again with attention'),
        run: async () => {
          const { generation } = (await source.generate?.({ ...request, attention: true })) ?? {};
          choose({ generation: generation ?? null });
        }
      }
    : null;
}
