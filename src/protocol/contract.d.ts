// The JSON of protocol/ as it is imported here. TypeScript itself would read neither unions nor tuples.

declare module '#protocol/streams.json' {
  const contract: {
    readonly streams: Readonly<
      Record<import('./streams.generated').StreamName, import('./streams').IStreamInfo>
    >;
  };
  export default contract;
}

declare module '#protocol/messages.schema.json' {
  const schema: import('./schema-check').ISchema;
  export default schema;
}

declare module '#protocol/views.schema.json' {
  const schema: import('./schema-check').ISchema;
  export default schema;
}

declare module '#protocol/pipeline.schema.json' {
  const schema: import('./schema-check').ISchema;
  export default schema;
}

declare module '#protocol/split.schema.json' {
  const schema: import('./schema-check').ISchema;
  export default schema;
}

declare module '#protocol/charts/*.vl.json' {
  const template: Readonly<Record<string, unknown>>;
  export default template;
}

declare module '#protocol/charts/colors.json' {
  type Colors = readonly [string, string, ...string[]];
  type Eight = readonly [string, string, string, string, string, string, string, string];
  type Ink = Readonly<Record<'strong' | 'text' | 'muted' | 'line' | 'grid' | 'ground', string>>;
  const colors: {
    readonly sequential: Colors;
    readonly diverging: Colors;
    readonly diverging_dark: Colors;
    readonly layers: { readonly light: Colors; readonly dark: Colors };
    readonly categorical: { readonly light: Eight; readonly dark: Eight };
    readonly flags: Colors;
    readonly nonfinite: readonly [string, string];
    readonly neutral: string;
    readonly severity: Readonly<Record<'critical' | 'warning' | 'note', string>>;
    readonly events: Readonly<
      Record<'settings' | 'perturbation' | 'pause' | 'resume' | 'restart' | 'lost' | 'checkpoint', string>
    >;
    readonly waiting: Readonly<
      Record<'collective' | 'send' | 'receive', readonly [light: string, dark: string]>
    >;
    readonly rule: string;
    readonly ink: Readonly<Record<'light' | 'dark', Ink>>;
  };
  export default colors;
}
