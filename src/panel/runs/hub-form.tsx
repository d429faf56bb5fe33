import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IForeignHub } from '../../client/runs-api';
import { Select, TextField } from '../shell/fields';

/** Stands for our own protocol where a dialect is chosen. */
const OURS = 'megalens';

/** Hubs of peers reachable by address, by the name that the server and `hello.origin` give the dialect. */
export const DIALECTS: readonly { id: IForeignHub['dialect']; name: string }[] = [
  { id: '3606', name: 'Megatron-LM 3606' },
  { id: 'T1', name: 'MegatronApp training' },
  { id: 'T2', name: 'MegatronApp training, megascope-update' },
  { id: 'inference', name: 'MegatronApp inference' }
];

export interface IHubAddress {
  address: string;
  /** Of one of our hubs. */
  token: string;
  /** A peer's hub; null is one of ours. */
  foreign: IForeignHub | null;
}

/** Fields for a hub's address; what its dialect needs and no more. */
export function HubForm(props: {
  trans: TranslationBundle;
  /** Notified at every key, and first of all as it is. */
  change: (answer: IHubAddress) => void;
}): React.ReactElement {
  const { trans, change } = props;
  const [speaks, setSpeaks] = React.useState(OURS);
  const [address, setAddress] = React.useState('ws://127.0.0.1:');
  const [token, setToken] = React.useState('');
  const [prompt, setPrompt] = React.useState('');
  const dialect = DIALECTS.find(each => each.id === speaks)?.id ?? null;
  const asks = dialect === 'inference';
  React.useEffect(() => {
    const foreign = dialect === null ? null : { dialect, ...(asks ? { prompts: [prompt] } : {}) };
    change({ address: address.trim(), token: dialect === null ? token.trim() : '', foreign });
  });
  return (
    <>
      <p>
        {dialect === null
          ? trans.__(
              'The Jupyter server makes the connection; the administrator must have allowed the address. The token is in the hub’s runtime file.'
            )
          : trans.__(
              'The Jupyter server follows this hub and translates what it sends; the administrator must have allowed the address. It numbers no steps, so they are inferred.'
            )}
      </p>
      <label>
        {trans.__('Protocol')}
        <Select
          value={speaks}
          options={[[OURS, trans.__('Megalens')], ...DIALECTS.map(({ id, name }) => [id, name] as const)]}
          choose={setSpeaks}
        />
      </label>
      <TextField
        label={trans.__('Address')}
        spellCheck={false}
        value={address}
        placeholder={trans.__('ws://host:port')}
        change={setAddress}
      />
      {dialect === null && (
        <TextField
          label={trans.__('Token')}
          type="password"
          autoComplete="off"
          value={token}
          change={setToken}
        />
      )}
      {asks && (
        <TextField
          label={trans.__('Prompt to continue')}
          maxLength={4000}
          value={prompt}
          change={setPrompt}
        />
      )}
    </>
  );
}
