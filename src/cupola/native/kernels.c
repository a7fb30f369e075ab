/* What happens in every environment and step: policy, physics, observation, reward.
 *
 * Plain C without the headers of Python or MuJoCo: the functions of MuJoCo come as pointers, so that
 * one library serves every version of both. The structures are those of __init__.py, field by field.
 * An environment is computed by itself, in an order that nothing else changes: results do not depend
 * on the number of threads, which each call this library for environments of their own.
 *
 * Axes: T time, N environments, I inputs of the networks, A actions, M objects, G gremlins, K costs.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__linux__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

#ifndef SOURCE
#define SOURCE ""
#endif
/* The digest of this file when it was compiled: a library of another version is not used. */
EXPORT const char *source(void) { return SOURCE; }

/* ---- physics: N simulations, each with an mjData of its own */

typedef struct {
    const double *const *from; /* [N], within each mjData */
    double *to;                /* [N, size] */
    int64_t size;
} Field;

typedef struct {
    void (*step)(const void *, void *);
    void (*step2)(const void *, void *);
    void (*forward)(const void *, void *);
    void (*set_state)(const void *, void *, const double *, int);
    void (*get_state)(const void *, const void *, double *, int);
    const void *model;
    void *const *data;  /* [N] */
    double *state;      /* [N, size], what the future depends on; Python reads and writes it */
    double *loaded;     /* [N, size], the same as the mjData have it */
    uint8_t *stage;     /* [N], see below */
    int64_t size;
    int64_t signature;
    const Field *fields; /* what Python has bound: copied behind every call */
    int64_t field_count;
} Physics;

enum { EMPTY, LOADED, DERIVED }; /* DERIVED: mj_forward was the last call */

static void load(const Physics *p, int64_t i) {
    double *row = p->state + i * p->size, *loaded = p->loaded + i * p->size;
    size_t bytes = (size_t)p->size * sizeof(double);
    if (p->stage[i] != EMPTY && memcmp(row, loaded, bytes) == 0) return;
    p->set_state(p->model, p->data[i], row, (int)p->signature);
    memcpy(loaded, row, bytes);
    p->stage[i] = LOADED;
}

static void store(const Physics *p, int64_t i, uint8_t stage) {
    double *row = p->state + i * p->size;
    p->get_state(p->model, p->data[i], row, (int)p->signature);
    memcpy(p->loaded + i * p->size, row, (size_t)p->size * sizeof(double));
    p->stage[i] = stage;
    for (const Field *f = p->fields; f < p->fields + p->field_count; f++)
        memcpy(f->to + i * f->size, f->from[i], (size_t)f->size * sizeof(double));
}

EXPORT void physics_step(const Physics *p, const int64_t *ids, int64_t count, int64_t steps) {
    for (int64_t at = 0; at < count; at++) {
        int64_t i = ids[at];
        load(p, i);
        for (int64_t k = 0; k < steps; k++) p->step(p->model, p->data[i]);
        store(p, i, LOADED);
    }
}

EXPORT void physics_forward(const Physics *p, const int64_t *ids, int64_t count) {
    for (int64_t at = 0; at < count; at++) {
        load(p, ids[at]);
        p->forward(p->model, p->data[ids[at]]);
        store(p, ids[at], DERIVED);
    }
}

/* ---- policy: a normalising network with tanh, and Gaussian noise around its output */

typedef struct {
    int64_t layers;
    const int64_t *sizes; /* [layers + 1], the first is I and the last A */
    const float *const *weights; /* of each layer [in, out] */
    const float *const *biases;
    const float *shift, *scale; /* [I]; NULL: observations are not normalised */
    const float *std;           /* [A] */
    double clip;
} Policy;

FOR_EVERY_PROCESSOR
static void dense(const float *restrict x, int64_t in, const float *restrict weight,
                  const float *restrict bias, float *restrict y, int64_t out) {
    for (int64_t o = 0; o < out; o++) y[o] = bias[o];
    for (int64_t k = 0; k < in; k++) {
        float value = x[k];
        const float *restrict row = weight + k * out;
        for (int64_t o = 0; o < out; o++) y[o] += value * row[o];
    }
}

/* tanh of y [n] in place: the quotient of polynomials that XLA computes with. Unlike tanhf of the C
 * library it is computed for many numbers at once, and to the same bits on every machine. */
FOR_EVERY_PROCESSOR
static void squash(float *restrict y, int64_t n) {
    for (int64_t o = 0; o < n; o++) {
        const float end = 7.90531110763549805f; /* tanh rounds to 1 behind it */
        float x = y[o] > end ? end : y[o] < -end ? -end : y[o];
        float square = x * x;
        float above = -2.76076847742355e-16f;
        above = above * square + 2.00018790482477e-13f;
        above = above * square - 8.60467152213735e-11f;
        above = above * square + 5.12229709037114e-08f;
        above = above * square + 1.48572235717979e-05f;
        above = above * square + 6.37261928875436e-04f;
        above = above * square + 4.89352455891786e-03f;
        float below = 1.19825839466702e-06f;
        below = below * square + 1.18534705686654e-04f;
        below = below * square + 2.26843463243900e-03f;
        below = below * square + 4.89352518554385e-03f;
        y[o] = x * above / below;
    }
}

/* An action [A] for an observation [I] and unit noise [A]; scratch holds two of the widest layer. */
static void act(const Policy *p, const float *obs, const float *noise, float *action,
                float *scratch, int64_t widest) {
    float *x = scratch, *y = scratch + widest;
    float clip = (float)p->clip;
    for (int64_t k = 0; k < p->sizes[0]; k++) {
        float value = obs[k];
        if (p->shift) {
            value = (value - p->shift[k]) * p->scale[k];
            value = value < -clip ? -clip : value > clip ? clip : value;
        }
        x[k] = value;
    }
    for (int64_t l = 0; l < p->layers; l++) {
        int64_t out = p->sizes[l + 1];
        dense(x, p->sizes[l], p->weights[l], p->biases[l], y, out);
        if (l + 1 < p->layers) squash(y, out);
        float *other = x;
        x = y;
        y = other;
    }
    for (int64_t a = 0; a < p->sizes[p->layers]; a++) action[a] = x[a] + p->std[a] * noise[a];
}

/* ---- a rollout's arrays: float [T, n, ...] within arrays [T, N, ...], strides in elements */

typedef struct {
    int64_t steps;     /* T */
    const int64_t *inputs; /* [I], columns of an observation */
    int64_t input_count, act_size, cost_count;
    int64_t stride; /* environments of the whole arrays, N */
    const float *noise;
    float *obs, *next_obs, *actions, *rewards, *costs;
    uint8_t *terminated, *truncated;
    double *before, *after; /* [T, n, P], positions of robots */
    float *scratch;         /* [n, 2 widest] */
    int64_t widest;
} Rollout;

static void record(const Rollout *r, float *to, const double *obs, int64_t i, int64_t t) {
    to += (t * r->stride + i) * r->input_count;
    for (int64_t k = 0; k < r->input_count; k++) to[k] = (float)obs[r->inputs[k]];
}

static float *choose(const Rollout *r, const Policy *p, const double *obs, int64_t i, int64_t t) {
    int64_t at = t * r->stride + i;
    float *action = r->actions + at * r->act_size;
    record(r, r->obs, obs, i, t);
    act(p, r->obs + at * r->input_count, r->noise + at * r->act_size, action,
        r->scratch + i * 2 * r->widest, r->widest);
    return action;
}

/* ---- the episode's end */

typedef struct {
    int64_t *elapsed; /* [N] */
    int64_t limit;
    uint8_t *terminated, *truncated; /* [N], of the last step */
} Clock;

static int tick(const Clock *c, int64_t i) {
    c->elapsed[i]++;
    c->truncated[i] = c->elapsed[i] >= c->limit && !c->terminated[i];
    return c->terminated[i] || c->truncated[i];
}

/* ---- robots */

typedef struct {
    const Physics *physics;
    Clock clock;
    double *const *qpos, *const *qvel, *const *ctrl, *const *places; /* [N], within each mjData */
    const Field *dynamics; /* parts of the observation; their `to` is not used */
    int64_t dynamics_count;
    const double *shares; /* [bodies], of the mass; NULL: `places` [N] are the position itself */
    int64_t bodies;
    int64_t nq, nv, skip_qpos, obs_size, axes, frame_skip;
    double velocity_clip;
    int64_t height; /* the coordinate that must stay between low and high; -1: episodes never end */
    double low, high, angle, bound;
    double *obs;      /* [N, O] */
    double *position; /* [N, P] */
} Robot;

static void locate(const Robot *r, int64_t i, double *position) {
    const double *places = r->places[i];
    for (int64_t a = 0; a < r->axes; a++) {
        if (!r->shares) {
            position[a] = places[a];
            continue;
        }
        double sum = 0;
        for (int64_t b = 0; b < r->bodies; b++) sum += r->shares[b] * places[3 * b + a];
        position[a] = sum;
    }
}

static void robot_observe(const Robot *r, int64_t i) {
    double *obs = r->obs + i * r->obs_size;
    for (int64_t k = r->skip_qpos; k < r->nq; k++) *obs++ = r->qpos[i][k];
    for (int64_t k = 0; k < r->nv; k++) {
        double v = r->qvel[i][k], bound = r->velocity_clip;
        *obs++ = v > bound ? bound : v < -bound ? -bound : v;
    }
    for (const Field *f = r->dynamics; f < r->dynamics + r->dynamics_count; f++) {
        memcpy(obs, f->from[i], (size_t)f->size * sizeof(double));
        obs += f->size;
    }
}

static int healthy(const Robot *r, int64_t i) {
    const double *qpos = r->qpos[i], *qvel = r->qvel[i];
    if (r->height < 0) return 1;
    double height = qpos[r->height];
    if (!(height > r->low && height < r->high)) return 0;
    if (isfinite(r->angle) && !(fabs(qpos[r->height + 1]) < r->angle)) return 0;
    for (int64_t k = r->bound < INFINITY ? r->height + 1 : 0; k < r->nq; k++)
        if (!(fabs(qpos[k]) < r->bound)) return 0;
    for (int64_t k = 0; k < r->nv; k++)
        if (!(fabs(qvel[k]) < r->bound)) return 0;
    return 1;
}

/* The observation and position of an episode that has just begun. */
EXPORT void robot_begin(const Robot *r, int64_t i) {
    load(r->physics, i);
    robot_observe(r, i);
    locate(r, i, r->position + i * r->axes);
}

/* Physics of environment i alone, from step t until `until`, with actions [T, N, A]. */
EXPORT void robot_drive(const Robot *r, int64_t i, int64_t t, int64_t until, const double *actions,
                        int64_t envs, int64_t act_size) {
    load(r->physics, i);
    for (; t < until; t++) {
        memcpy(r->ctrl[i], actions + (t * envs + i) * act_size,
               (size_t)act_size * sizeof(double));
        for (int64_t k = 0; k < r->frame_skip; k++)
            r->physics->step(r->physics->model, r->physics->data[i]);
    }
    store(r->physics, i, LOADED);
}

/* Play environment i from step t on, at most until `until`; returns where it stopped. If its episode
 * ended there, the caller begins a new one. */
EXPORT int64_t robot_play(const Robot *r, const Policy *p, const Rollout *out, int64_t i,
                          int64_t t, int64_t until) {
    const Physics *physics = r->physics;
    double *obs = r->obs + i * r->obs_size, *position = r->position + i * r->axes;
    load(physics, i);
    while (t < until) {
        int64_t at = t * out->stride + i;
        float *action = choose(out, p, obs, i, t);
        for (int64_t a = 0; a < out->act_size; a++) r->ctrl[i][a] = action[a];
        for (int64_t k = 0; k < r->frame_skip; k++) physics->step(physics->model, physics->data[i]);
        memcpy(out->before + at * r->axes, position, (size_t)r->axes * sizeof(double));
        locate(r, i, position);
        memcpy(out->after + at * r->axes, position, (size_t)r->axes * sizeof(double));
        r->clock.terminated[i] = !healthy(r, i);
        robot_observe(r, i);
        record(out, out->next_obs, obs, i, t);
        int ended = tick(&r->clock, i);
        out->terminated[at] = r->clock.terminated[i];
        out->truncated[at] = r->clock.truncated[i];
        t++;
        if (ended) break;
    }
    store(physics, i, LOADED);
    return t;
}

/* ---- Safety Gym */

enum { HAZARDS = 1, GREMLINS = 2, BUTTONS = 4, VASES_CONTACT = 8, VASES_VELOCITY = 16 };
#define BINS 16
#define REACH 3.0
#define PI 3.14159265358979323846

typedef struct {
    const Physics *physics;
    Clock clock;
    double *const *qpos, *const *qvel, *const *ctrl; /* [N], within each mjData */
    double *const *mocap_pos, *const *mocap_quat, *const *applied, *const *sensors;
    double *const *position, *const *frame;  /* of the robot */
    int64_t nq, nv, sensor_count, sensors_seen, obs_size, substeps;
    const int64_t *kinds; /* [L + 1], where each kind of objects begins, and the end */
    int64_t kind_count, envs;
    int64_t goal, moving, loose, gremlins, buttons, hazards, hazards_end;
    int64_t fragile;
    double timestep, goal_size, hazard_size, travel, gremlin_height;
    double gremlin_at_rest, vase_at_rest, weld_excess;
    const int64_t *masks; /* [K], the parts that each cost is made of */
    double *objects;      /* [2, M, N] */
    double *centres;      /* [N, G, 2] */
    double *distance;     /* [N] */
    int64_t *button, *timer;
    double *obs;    /* [N, O] */
    double *reward; /* [N] */
    uint8_t *parts; /* [N], of the cost */
    uint8_t *met;   /* [N], the goal is met and a new one is due */
} World;

static double *loose_pos(const World *w, int64_t i, int64_t j) {
    return w->qpos[i] + w->nq - 7 * (w->loose - j);
}

static double *loose_vel(const World *w, int64_t i, int64_t j) {
    return w->qvel[i] + w->nv - 6 * (w->loose - j);
}

static int spins(const World *w, int64_t i, int64_t j) {
    const double *v = loose_vel(w, i, j) + 3;
    return v[0] * v[0] + v[1] * v[1] + v[2] * v[2] > w->gremlin_at_rest * w->gremlin_at_rest;
}

/* The torque of `world.weld_excess` on one gremlin. */
static void correct_weld(const World *w, int64_t i, int64_t j) {
    const double *q = loose_pos(w, i, j) + 3, *v = loose_vel(w, i, j) + 3;
    const double *mocap = w->mocap_quat[i] + 4 * j;
    double *torque = w->applied[i] + w->nv - 6 * (w->loose - j) + 3;
    double c = mocap[0], s = mocap[3]; /* always about the vertical */
    double scale = w->weld_excess * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    scale *= q[0] * c + q[3] * s;
    torque[0] = scale * (-q[1] * c - q[2] * s);
    torque[1] = scale * (q[1] * s - q[2] * c);
    torque[2] = scale * (q[0] * s - q[3] * c);
}

/* Physics of one action, without what is derived from the state behind it. */
static void move(const World *w, int64_t i, const double *action) {
    const Physics *p = w->physics;
    load(p, i);
    void *data = p->data[i];
    int64_t done = 0;
    w->ctrl[i][0] = action[0];
    w->ctrl[i][1] = action[1];
    if (w->gremlins) {
        double time = p->state[i * p->size];
        const double *centre = w->centres + i * w->gremlins * 2;
        uint8_t spinning[64];
        for (int64_t j = 0; j < w->gremlins; j++) spinning[j] = (uint8_t)spins(w, i, j);
        for (; done < w->substeps; done++) {
            double phase = time + w->timestep * (double)done;
            double x = w->travel * sin(phase), y = w->travel * cos(phase);
            for (int64_t j = 0; j < w->gremlins; j++) {
                double *target = w->mocap_pos[i] + 3 * j;
                target[0] = centre[2 * j] + x;
                target[1] = centre[2 * j + 1] + y;
                target[2] = w->gremlin_height;
                if (spinning[j]) correct_weld(w, i, j);
            }
            p->step(p->model, data);
        }
    } else if (p->stage[i] == DERIVED) {
        p->step2(p->model, data); /* its first half was a part of mj_forward */
        done++;
    }
    for (; done < w->substeps; done++) p->step(p->model, data);
}

static void advance(const World *w, int64_t i, const double *action) {
    const Physics *p = w->physics;
    move(w, i, action);
    for (int64_t j = 0; j < w->gremlins; j++) {
        double *torque = w->applied[i] + w->nv - 6 * (w->loose - j) + 3;
        if (spins(w, i, j))
            correct_weld(w, i, j);
        else
            torque[0] = torque[1] = torque[2] = 0;
    }
    p->forward(p->model, p->data[i]);
    store(p, i, DERIVED);
    for (int64_t j = 0; j < w->loose; j++)
        for (int64_t a = 0; a < 2; a++)
            w->objects[(a * w->kinds[w->kind_count] + w->moving + j) * w->envs + i] =
                loose_pos(w, i, j)[a];
}

static double gap(const World *w, int64_t i, int64_t m, int64_t axis) {
    return w->objects[(axis * w->kinds[w->kind_count] + m) * w->envs + i] - w->position[i][axis];
}

static double distance_of(const World *w, int64_t i, int64_t m) {
    double x = gap(w, i, m, 0), y = gap(w, i, m, 1);
    return sqrt(x * x + y * y);
}

/* Reward, parts of the cost, and whether the goal is met. */
static void score(const World *w, int64_t i) {
    const double *touches = w->sensors[i] + w->sensor_count - w->loose - w->buttons;
    const double *presses = touches + w->loose;
    double near = distance_of(w, i, w->goal);
    int met = w->buttons ? presses[w->button[i]] > 0 : near <= w->goal_size;
    double reward = w->distance[i] - near + met;
    w->reward[i] = reward > 10 ? 10 : reward < -10 ? -10 : reward;
    w->distance[i] = near;
    int pressed = 0, touched = 0, moving = 0;
    uint8_t parts = 0;
    for (int64_t m = w->hazards; m < w->hazards_end; m++)
        if (distance_of(w, i, m) < w->hazard_size) parts |= HAZARDS;
    for (int64_t b = 0; b < w->buttons; b++) pressed += presses[b] > 0;
    for (int64_t j = 0; j < w->loose; j++) {
        const double *v = loose_vel(w, i, j);
        touched |= touches[j] > 0;
        moving |= sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]) >= w->vase_at_rest;
    }
    if (w->gremlins && touched) parts |= GREMLINS;
    if (w->gremlins && pressed > met && w->timer[i] == 0) parts |= BUTTONS;
    if (w->fragile && touched) parts |= VASES_CONTACT;
    if (w->fragile && moving) parts |= VASES_VELOCITY;
    if (w->timer[i] > 0) w->timer[i]--;
    w->parts[i] = parts;
    w->met[i] = (uint8_t)met;
    w->clock.terminated[i] = 0;
}

/* Closeness of the objects of each kind in 16 directions around the robot (lidar.py). */
static void lidar(const World *w, int64_t i, double *readings) {
    const double *frame = w->frame[i], height = w->position[i][2];
    memset(readings, 0, (size_t)(w->kind_count * BINS) * sizeof(double));
    for (int64_t kind = 0; kind < w->kind_count; kind++, readings += BINS) {
        for (int64_t m = w->kinds[kind]; m < w->kinds[kind + 1]; m++) {
            double east = gap(w, i, m, 0), north = gap(w, i, m, 1), place[2];
            for (int a = 0; a < 2; a++)
                place[a] = east * frame[a] + north * frame[3 + a] - height * frame[6 + a];
            double far = sqrt(place[0] * place[0] + place[1] * place[1]);
            double closeness = 1 - far / REACH;
            if (closeness <= 0) continue;
            double turn = atan2(place[1], place[0]) * (BINS / (2 * PI));
            for (int bin = 0; bin < BINS; bin++) {
                double centre = bin < BINS / 2 ? bin + 0.5 : bin + 0.5 - BINS;
                double weight = fabs(fabs(turn - centre) - BINS / 2) - (BINS / 2 - 1.5);
                weight = weight > 1 ? 1 : weight < 0 ? 0 : weight;
                if (weight * closeness > readings[bin]) readings[bin] = weight * closeness;
            }
        }
    }
}

EXPORT void world_observe(const World *w, int64_t i) {
    double *obs = w->obs + i * w->obs_size;
    memcpy(obs, w->sensors[i], (size_t)w->sensors_seen * sizeof(double));
    lidar(w, i, obs + w->sensors_seen);
    if (w->timer[i] > 0) memset(obs + w->sensors_seen, 0, BINS * sizeof(double));
}

/* The end of a step, once a goal that was met has been replaced; 1 where the episode ends. */
static int finish(const World *w, int64_t i) {
    w->met[i] = 0;
    world_observe(w, i);
    return tick(&w->clock, i);
}

EXPORT void world_advance(const World *w, const int64_t *ids, int64_t count,
                          const double *actions) {
    for (int64_t at = 0; at < count; at++) advance(w, ids[at], actions + 2 * ids[at]);
}

EXPORT void world_move(const World *w, const int64_t *ids, int64_t count, const double *actions) {
    for (int64_t at = 0; at < count; at++) {
        move(w, ids[at], actions + 2 * ids[at]);
        store(w->physics, ids[at], LOADED);
    }
}

/* Physics of environment i alone, from step t until `until`, with actions [T, N, 2]. */
EXPORT void world_drive(const World *w, int64_t i, int64_t t, int64_t until,
                        const double *actions) {
    for (; t < until; t++) {
        move(w, i, actions + 2 * (t * w->envs + i));
        store(w->physics, i, LOADED);
    }
}

/* A step of environments ``ids``; those whose goal is met wait for `world_finish`. */
EXPORT void world_step(const World *w, const int64_t *ids, int64_t count, const double *actions) {
    for (int64_t at = 0; at < count; at++) {
        int64_t i = ids[at];
        advance(w, i, actions + 2 * i);
        score(w, i);
        if (!w->met[i]) finish(w, i);
    }
}

EXPORT void world_finish(const World *w, int64_t i) { finish(w, i); }

/* Play environment i from step t on, at most until `until`; returns the step where it stopped. If a
 * goal is met there, the caller replaces it and goes on with the same step; if the episode ended
 * with the step before, the caller begins a new one. */
EXPORT int64_t world_play(const World *w, const Policy *p, const Rollout *out, int64_t i,
                          int64_t t, int64_t until) {
    double *obs = w->obs + i * w->obs_size;
    while (t < until) {
        int64_t at = t * out->stride + i;
        if (!w->met[i]) {
            float *action = choose(out, p, obs, i, t);
            double numbers[2] = {action[0], action[1]};
            advance(w, i, numbers);
            score(w, i);
            out->rewards[at] = (float)w->reward[i];
            for (int64_t k = 0; k < out->cost_count; k++)
                out->costs[at * out->cost_count + k] = (w->parts[i] & w->masks[k]) != 0;
            if (w->met[i]) return t;
        }
        int ended = finish(w, i);
        record(out, out->next_obs, obs, i, t);
        out->terminated[at] = w->clock.terminated[i];
        out->truncated[at] = w->clock.truncated[i];
        t++;
        if (ended) break;
    }
    return t;
}
